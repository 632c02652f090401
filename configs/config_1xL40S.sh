# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 408, with PyTorch.
#
#   command     DGXSYSTEM=1xL40S DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     one L40S with 48 GB
#   expected    epoch 36; not measured with this code
#   borrowed    hyperparameters: H3C R4900G6 with 2 A30, MLPerf Training v3.0; see config_1xA100.sh for who else had
#               these values, and for why EVAL_OFFSET=3
#               input pipeline: NVIDIA 2xA30, MLPerf Training v2.0, less its hints on buffers

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=lars
export BATCHSIZE=408                # per GPU; 408 in all
export LR=3.0
export WARMUP_EPOCHS=2
export NUMEPOCHS=37
export MOM=0.9
export WD=5e-5                      # the rules allow 0.0001 * 2^n
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=3                # epochs 4, 8, ..., 36
export EVAL_PERIOD=4

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=1xL40S
export FRAMEWORK=pytorch
export DGXNGPU=1
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph; measured on an H200 alone
export SUBMISSION_PLATFORM=1xL40S

# --- data: the whole ImageNet -------------------------------------------------
export DATADIR="${DATADIR:-/data}"

# --- input pipeline (speed only) ----------------------------------------------
export DALI_THREADS=6
export DALI_PREFETCH_QUEUE=5
export DALI_ROI_DECODE=1            # decode only the random crop
export DALI_NVJPEG_MEMPADDING=256

# --- environment (passed through) ---------------------------------------------
# Nothing yet.
