# shellcheck shell=bash
# ResNet-50 on ImageNet by the open recipe, global batch size 1024, with PyTorch: as MosaicML and Ailiverse trained it.
#
#   command     DGXSYSTEM=H200_OPEN DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     one H200 with 141 GB
#   expected    epoch 27; not measured with this code
#   published   ten of ten runs at global batch 2048 reached 75.9 % at epoch 27, on 8 A100; see config_DGXH100_OPEN.sh
#   borrowed    hyperparameters: config_DGXH100_OPEN.sh, for half the batch: LR is half, the average's half-life in steps twice
#               input pipeline: config_H200.sh

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=sgd
export BATCHSIZE=1024               # per GPU; 1024 in all
export LR=1.024
export WARMUP_EPOCHS=8
export NUMEPOCHS=27
export MOM=0.875
export WD=5e-4
export LABELSMOOTHING=0.08
export EVAL_OFFSET=2                # epochs 3, 6, ..., 27
export EVAL_PERIOD=3
export IMAGE_SIZES=96:1,128:15,160:19,176:22
export LR_DECAY=cosine
export DECOUPLED_WD=1
export LOSS=binary
export BLURPOOL=1
export EMA_HALF_LIFE=200            # steps

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=H200_OPEN
export FRAMEWORK=pytorch
export DGXNGPU=1
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph
export SUBMISSION_DIVISION=open     # no round takes ResNet-50 since v4.0
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
