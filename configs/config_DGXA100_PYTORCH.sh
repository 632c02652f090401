# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 3264, with PyTorch.
#
#   command     DGXSYSTEM=DGXA100_PYTORCH DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     NVIDIA DGX A100: 8 A100-SXM4-80GB
#   expected    epoch 35; minutes not measured with this code: 28 to 30 with STEP_MODE=fused, 37 to 39 with graph, an estimate (docs/fastest.md)
#   published   28.69 minutes by NVIDIA, with its code in NVIDIA's MXNet container, which fuses layers; here STEP_MODE=fused does
#   curve       3: 0.281-0.328, 7: 0.403-0.460, 11: 0.489-0.549, 15: 0.573-0.597, 19: 0.618-0.651, 23: 0.680-0.700,
#               27: 0.721-0.730, 31: 0.749-0.753, 35: 0.758-0.761 (top-1 of the 10 runs of Inspur, NF5688M6 and NF5488A5)
#   borrowed    hyperparameters: NVIDIA DGX A100, MLPerf Training v2.0. Of 320 published runs of v0.7 to v3.0 with these
#               values 301 reached 75.9 %: at epoch 35, two systems at 36
#               input pipeline: config_DGXA100.sh, less its hints on buffers and what only MXNet reads

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=lars
export BATCHSIZE=408                # per GPU; 3264 in all
export LR=10.5
export WARMUP_EPOCHS=2
export NUMEPOCHS=37
export MOM=0.9
export WD=5e-5                      # the rules allow 0.0001 * 2^n
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=2                # epochs 3, 7, ..., 35
export EVAL_PERIOD=4

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=DGXA100_PYTORCH
export FRAMEWORK=pytorch
export DGXNGPU=8
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph; measured on an H200 alone
export SUBMISSION_PLATFORM=1xDGXA100

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
