# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 304; written by rn50, `rn50 config new`.
#
#   command     DGXSYSTEM=MINE DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     NVIDIA GeForce RTX 4090, 24 GiB; Intel(R) Core(TM) i7-10510U CPU @ 1.80GHz, 8 CPUs, 15 GiB
#   expected    epochs are not known: the recipe was chosen for a global batch size of 408
#               674 minutes (542 to 840) at the rate of others' code on RTX-4090
#               this code, by estimate: 428 minutes (334 to 550), from the memory bandwidth: 1,008 GB/s, where H200-SXM-141GB with 4,800 made 8,551 images/s
#   borrowed    by `rn50 borrow v2.0/Krai/7920T_2xA5000`, for config_MINE.sh
#               source: published result, division closed
#               round: MLPerf Training v2.0
#               organisation: Krai
#               system: 7920T_2xA5000
#               hardware: 2 x NVIDIA RTX A5000, MxNet NVIDIA Release 22.04
#               table: published.csv, SHA-256 16994683483e5176dc360684536631b1fb2246700573db9eb5a5e675c98d7005
#   changed     global batch size 408 there, 304 here; the rest as it was
#   assumed     the source does not say: LARSETA=0.001
#   note        batch norm is over 304 images here, and was over 204

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=lars               # borrowed
export BATCHSIZE=304                # per GPU, 304 in all: fits the 23.1 GiB that are free; fewest predicted minutes within 3%, most published runs
export LR=3.0                       # borrowed: for 408 in all
export WARMUP_EPOCHS=2              # borrowed
export NUMEPOCHS=37                 # borrowed
export MOM=0.9                      # borrowed
export WD=5e-05                     # borrowed
export LARSETA=0.001                # assumed
export LABELSMOOTHING=0.1           # borrowed
export EVAL_OFFSET=2                # borrowed: epochs 3, 7, 11, ...
export EVAL_PERIOD=4                # borrowed

# --- run ----------------------------------------------------------------------
export DGXSYSTEM=MINE               # name of this file
export FRAMEWORK=pytorch            # the default from compute capability 7.5 on: MXNet's wheel is channels-first, by estimate slower; rn50 doctor says how to install it
export DGXNGPU=1                    # ranks: one per GPU
export DGXNNODES=1                  # this machine
export DEVICE=gpu                   # NVIDIA GeForce RTX 4090
export PRECISION=float16            # on tensor cores, with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph; measured on an H200 alone
export SUBMISSION_PLATFORM=1xMINE   # as the log names it

# --- data ---------------------------------------------------------------------
export DATADIR="${DATADIR:-/data}"  # packed by rn50 pack

# --- input pipeline (speed only) ----------------------------------------------
export DALI_THREADS=7               # of 8 CPUs a rank; `rn50 tune input MINE` improves it
export DALI_PREFETCH_QUEUE=2        # the default; `rn50 tune input MINE` improves it
export DALI_ROI_DECODE=1            # decode only the random crop

# --- environment (passed through) ---------------------------------------------
# Nothing: libraries choose for themselves.
