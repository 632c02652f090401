# shellcheck shell=bash
# DEMO_GPU_PYTORCH by the open recipe: one GPU, no ImageNet, trained on smaller images than it is evaluated on.
#
#   command     rn50 demo-data --scale 4 data/demo_224 && DGXSYSTEM=DEMO_GPU_OPEN ./run_and_time.sh
#   turns       rn50 run DEMO_GPU_PYTORCH --against DEMO_GPU_OPEN
#   machine     one GPU that PyTorch knows
#   expected    not measured
#   borrowed    batch size, learning rate and number of steps: a run on the first demo data set, which reached 0.8895 at the
#               seventh of nine epochs of 10,000 images on one H200. The rest is untried. What it prints is no MLPerf result,
#               and says so.
#   open        images of 128 and 176 pixels, averaged weights, binary cross-entropy (docs/open.md)

# --- hyperparameters (one group: together they decide convergence) -----------
export OPTIMIZER=lars
export BATCHSIZE=128
export LR=4.0
export WARMUP_EPOCHS=1.7
export NUMEPOCHS=15
export MOM=0.9
export WD=5e-5
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=2                # epochs 3, 7, 11 and 15
export EVAL_PERIOD=4
export BN_GAMMA_ZERO=1
export IMAGE_SIZES=128:1,176:8     # evaluated at IMAGE_SIZE
export LOSS=binary
export EMA_HALF_LIFE=50            # steps; an epoch has 47

# --- run ---------------------------------------------------------------------
export DGXSYSTEM=DEMO_GPU_OPEN
export FRAMEWORK=pytorch
export DGXNGPU=1
export DGXNNODES=1
export DEVICE=gpu
export PRECISION=float16            # with float32 master weights
export STEP_MODE="${STEP_MODE:-fused}"   # kernels of ours in one CUDA graph
export SUBMISSION_ORG="demo data set, not an MLPerf result"
export SUBMISSION_DIVISION=open
export SUBMISSION_STATUS=research
export SUBMISSION_PLATFORM="DEMO_GPU_OPEN (demo data set, not an MLPerf result)"
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
