# shellcheck shell=bash
# The whole submission on one GPU without ImageNet: the whole ResNet-50 at 224x224 on a generated set of 10 classes, with PyTorch.
#
#   command     rn50 demo-data --scale 4 data/demo_224 && DGXSYSTEM=DEMO_GPU_PYTORCH ./run_and_time.sh
#               (`make bench-gpu` does this for five seeds, as its last part)
#   machine     one GPU that PyTorch knows
#   expected    not measured on these images; as many steps on 10,000 others took one H200 0.27 to 0.36 minutes
#               (docs/measurements.md)
#   borrowed    the recipe of those, with as many steps: 28 epochs of 6,000 images for 16. What it prints is no MLPerf
#               result, and says so.

# --- hyperparameters (one group: together they decide convergence) -----------
export OPTIMIZER=lars
export BATCHSIZE=256
export LR=8.0
export WARMUP_EPOCHS=3.5
export NUMEPOCHS=28
export MOM=0.9
export WD=5e-5
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=2                # epochs 3, 7, ..., 27
export EVAL_PERIOD=4
export BN_GAMMA_ZERO=1

# --- run ---------------------------------------------------------------------
export DGXSYSTEM=DEMO_GPU_PYTORCH
export FRAMEWORK=pytorch
export DGXNGPU=1
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE="${STEP_MODE:-fused}"   # kernels of ours in one CUDA graph
export SUBMISSION_ORG="demo data set, not an MLPerf result"
export SUBMISSION_DIVISION=closed
export SUBMISSION_STATUS=research
export SUBMISSION_PLATFORM="DEMO_GPU_PYTORCH (demo data set, not an MLPerf result)"
export SAVE_WEIGHTS="${SAVE_WEIGHTS:-first}"   # of the first run, for rn50 evaluate and rn50 export

# --- data --------------------------------------------------------------------
export DATADIR="${DATADIR:-data/demo_224}"
export NUMEXAMPLES=6000
export NUMVALEXAMPLES=2000
export NUMCLASSES=10
export IMAGE_SIZE=224
export EVAL_RESIZE=252
export CROP_AREA_MIN=0.4

# --- input pipeline (speed only) ---------------------------------------------
export DALI_THREADS=0               # all cores but one
export DALI_PREFETCH_QUEUE=5
export DALI_ROI_DECODE=1            # decode only the random crop
export DALI_HW_DECODER_LOAD=0.7     # of a GPU with a JPEG engine; DALI heeds it on no other

# --- environment (passed through) --------------------------------------------
# Nothing yet.
