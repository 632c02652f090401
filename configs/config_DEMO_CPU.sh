# shellcheck shell=bash
# The whole submission on any machine, no GPU needed: ResNet-50 at a quarter of its width on a generated set of 10 classes.
#
#   command     DGXSYSTEM=DEMO_CPU ./run_and_time.sh        (`make demo` does this for five seeds)
#   machine     any CPU; two cores or more
#   expected    epoch 5; 0.33 to 0.65 minutes on two cores of a Xeon. They train at 873 to 1,405 images/s
#   curve       1: 0.19-0.37, 5: 0.77-0.94 (top-1 of 55 runs; docs/measurements.md)
#   borrowed    nothing: tuned for this data set. What it prints is no MLPerf result, and says so.

# --- hyperparameters (one group: together they decide convergence) -----------
export OPTIMIZER=lars
export BATCHSIZE=32                 # images of each rank, 64 in all
export LR=3.0
export WARMUP_EPOCHS=0.5
export NUMEPOCHS=7                  # the learning rate would end there; a run ends at epoch 5
export MOM=0.9
export WD=5e-5
export LARSETA=0.001
export LABELSMOOTHING=0.1
export EVAL_OFFSET=0                # epochs 1 and 5
export EVAL_PERIOD=4
export BN_GAMMA_ZERO=1

# --- run ---------------------------------------------------------------------
export DGXSYSTEM=DEMO_CPU
export DGXNGPU=2                    # ranks; of more cores each has OpenMP threads
export DGXNNODES=1
export DEVICE=cpu
export PRECISION=auto
export SUBMISSION_ORG="demo data set, not an MLPerf result"
export SUBMISSION_DIVISION=closed
export SUBMISSION_STATUS=research
export SUBMISSION_PLATFORM="DEMO_CPU (demo data set, not an MLPerf result)"
export SAVE_WEIGHTS="${SAVE_WEIGHTS:-first}"   # of the first run, for rn50 evaluate and rn50 export

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
