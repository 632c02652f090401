# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 408, with PyTorch: MXNet 1.9.1 cannot use H200.
#
#   command     DGXSYSTEM=H200 DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     one H200 with 141 GB
#   expected    epoch 36; not measured with this code
#   borrowed    hyperparameters: H3C R4900G6 with 2 A30, MLPerf Training v3.0; see config_1xA100.sh for who else had
#               these values, and for why EVAL_OFFSET=3
#               input pipeline: config_DGXA100.sh, whose decoder has the same engine, less its hints on buffers

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
export DGXSYSTEM=H200
export FRAMEWORK=pytorch
export DGXNGPU=1
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph
export SUBMISSION_PLATFORM=1xH200

# --- data: the whole ImageNet -------------------------------------------------
export DATADIR="${DATADIR:-/data}"

# --- input pipeline (speed only) ----------------------------------------------
export DALI_THREADS=6
export DALI_PREFETCH_QUEUE=5
export DALI_ROI_DECODE=1            # decode only the random crop
export DALI_NVJPEG_MEMPADDING=256
export DALI_HW_DECODER_LOAD=0.7
export DALI_PREALLOCATE_WIDTH=5980
export DALI_PREALLOCATE_HEIGHT=6430

# --- environment (passed through) ---------------------------------------------
# Nothing yet.
