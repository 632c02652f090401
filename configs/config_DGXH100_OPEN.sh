# shellcheck shell=bash
# ResNet-50 on ImageNet by the open recipe, global batch size 2048, with PyTorch: as MosaicML and Ailiverse trained it.
#
#   command     DGXSYSTEM=DGXH100_OPEN DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     NVIDIA DGX H100: 8 H100-SXM5-80GB
#   expected    epoch 27; not measured with this code
#   published   23.79 minutes as v2.0/MosaicML/8xA100_80GB-methods, 28.98 as v3.1/Ailiverse/8xA100_40GB_open, in the open
#               division; ten of ten runs reached 75.9 %, all at epoch 27
#   borrowed    hyperparameters: resnet50_mild.yaml of MosaicML's composer, for 27 epochs. Other than there: each size is the
#               nearest of four to theirs; batch norm and biases do not decay; first weights, crops and EVAL_RESIZE are
#               those of the rules
#               input pipeline: config_DGXH100.sh

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=sgd
export BATCHSIZE=256                # per GPU; 2048 in all
export LR=2.048
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
export EMA_HALF_LIFE=100            # steps

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=DGXH100_OPEN
export FRAMEWORK=pytorch
export DGXNGPU=8
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph
export SUBMISSION_DIVISION=open     # no round takes ResNet-50 since v4.0
export SUBMISSION_PLATFORM=1xDGXH100

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
