# shellcheck shell=bash
# DEMO_CPU by the open recipe: on any machine, no GPU needed, ResNet-50 at a quarter of its width on a generated set of 10 classes.
#
#   command     DGXSYSTEM=DEMO_CPU_OPEN ./run_and_time.sh
#   turns       rn50 run DEMO_CPU --against DEMO_CPU_OPEN
#   machine     any CPU; two cores or more
#   expected    epoch 4; 0.27 to 0.45 minutes on two cores of a Xeon
#   curve       1: 0.25-0.35, 4: 0.78-0.88 (top-1 of 13 runs; docs/open.md)
#   borrowed    nothing: tuned for this data set. What it prints is no MLPerf result, and says so.
#   open        averaged weights, binary cross-entropy, a shorter decay, evaluations after epochs 1 and 4 (docs/open.md)

# --- hyperparameters (one group: together they decide convergence) -----------
export OPTIMIZER=lars
export BATCHSIZE=32                 # images of each rank, 64 in all
export LR=5.0
export WARMUP_EPOCHS=0.5
export NUMEPOCHS=7
export DECAY_EPOCHS=6               # the learning rate would end there; a run ends at epoch 4
export MOM=0.9
export WD=5e-5
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=0                # epochs 1, 4 and 7
export EVAL_PERIOD=3
export BN_GAMMA_ZERO=1
export LOSS=binary
export EMA_HALF_LIFE=30             # steps; an epoch has 94

# --- run ---------------------------------------------------------------------
export DGXSYSTEM=DEMO_CPU_OPEN
export DGXNGPU=2                    # ranks; of more cores each has OpenMP threads
export DGXNNODES=1
export DEVICE=cpu
export PRECISION=auto
export SUBMISSION_ORG="demo data set, not an MLPerf result"
export SUBMISSION_DIVISION=open
export SUBMISSION_STATUS=research
export SUBMISSION_PLATFORM="DEMO_CPU_OPEN (demo data set, not an MLPerf result)"
export SAVE_WEIGHTS="${SAVE_WEIGHTS:-first}"   # the averages of the first run, for rn50 evaluate and rn50 export

# --- data --------------------------------------------------------------------
export DATADIR="${DATADIR:-data/demo}"
export NUMEXAMPLES=6000
export NUMVALEXAMPLES=2000
export NUMCLASSES=10
export IMAGE_SIZE=48
export EVAL_RESIZE=54
export CROP_AREA_MIN=0.75
export WIDTH=0.25

# --- input pipeline (speed only) ---------------------------------------------
export DALI_THREADS=1
export DALI_PREFETCH_QUEUE=2
export DALI_ROI_DECODE=1            # decode only the random crop

# --- environment (passed through) --------------------------------------------
# Nothing: the ranks sum in shared memory, which has no settings.
