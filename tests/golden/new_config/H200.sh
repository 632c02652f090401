# shellcheck shell=bash
# ResNet-50 on ImageNet, global batch size 408; written by rn50, `rn50 config new`.
#
#   command     DGXSYSTEM=MINE DATADIR=/path/to/imagenet SUBMISSION_ORG="yours" ./run_and_time.sh
#   machine     NVIDIA H200, 140 GiB; Intel(R) Xeon(R) Platinum 8480C, 224 CPUs, 2016 GiB
#   expected    35.2 epochs (35 to 36); 3 of 30 runs missed (10%): 6 published results of this very recipe
#               93 minutes (76.1 to 114) at the rate of others' code on H200-SXM-141GB
#               this code, measured: 82.3 minutes (80.2 to 85.6), by 9,127 images/s on 1 x H200-SXM-141GB with 400 images each (docs/evidence/h200/steps.jsonl)
#   borrowed    by `rn50 borrow v2.0/Krai/7920T_2xA5000`, for config_MINE.sh
#               source: published result, division closed
#               round: MLPerf Training v2.0
#               organisation: Krai
#               system: 7920T_2xA5000
#               hardware: 2 x NVIDIA RTX A5000, MxNet NVIDIA Release 22.04
#               table: published.csv, SHA-256 16994683483e5176dc360684536631b1fb2246700573db9eb5a5e675c98d7005
#   assumed     the source does not say: LARSETA=0.001
#   note        batch norm is over 408 images here, and was over 204

# --- hyperparameters (one group: together they decide convergence) ------------
export OPTIMIZER=lars               # borrowed
export BATCHSIZE=408                # per GPU, 408 in all: fits the 140.4 GiB that are free; fewest predicted minutes within 3%, most published runs
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
export FRAMEWORK=pytorch            # MXNet has no code for compute capability 9.0; rn50 doctor says how to install it
export DGXNGPU=1                    # ranks: one per GPU
export DGXNNODES=1                  # this machine
export DEVICE=gpu                   # NVIDIA H200
export PRECISION=float16            # on tensor cores, with float32 master weights
export STEP_MODE=fused              # kernels of ours in one CUDA graph
export SUBMISSION_PLATFORM=1xMINE   # as the log names it

# --- data ---------------------------------------------------------------------
export DATADIR="${DATADIR:-/data}"  # packed by rn50 pack

# --- input pipeline (speed only) ----------------------------------------------
export DALI_THREADS=8               # of 224 CPUs a rank; `rn50 tune input MINE` improves it
export DALI_PREFETCH_QUEUE=2        # the default; `rn50 tune input MINE` improves it
export DALI_ROI_DECODE=1            # decode only the random crop
export DALI_HW_DECODER_LOAD=0.7     # share of the JPEG engine; faster than 1.0 on an H200, else not measured

# --- environment (passed through) ---------------------------------------------
# Nothing: libraries choose for themselves.
