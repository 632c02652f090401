# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 2048, with Paddle.
#
#   command     DGXSYSTEM=A100_PADDLE DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     eight A100 with 40 or 80 GB
#   expected    epoch 35; not measured with this code, whose Paddle has not run on a GPU
#   borrowed    hyperparameters: Intel-HabanaLabs HLS-Gaudi2-PT with 8 Gaudi2, MLPerf Training v2.1. With these values 45 of
#               45 published runs of this batch size reached 75.9 % at epoch 35 (v2.0 to v3.1). LARSETA and LABELSMOOTHING
#               are not in its logs: they are those of config_DGXA100.sh
#               input pipeline: config_DGXA100.sh, less its hints on buffers

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=lars
export BATCHSIZE=256                # per GPU; 2048 in all
export LR=9
export WARMUP_EPOCHS=3
export NUMEPOCHS=39
export DECAY_EPOCHS=32.97
export MOM=0.9
export WD=5e-5                      # the rules allow 0.0001 * 2^n
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=2                # epochs 3, 7, ..., 35
export EVAL_PERIOD=4

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=A100_PADDLE
export FRAMEWORK=paddle
export DGXNGPU=8
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export SUBMISSION_PLATFORM=8xA100

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
