#!/bin/bash
# sbatch slurm.sh RECIPE RUN_FOLDER     The same command again continues a run that was stopped or ran out of time.
#SBATCH --job-name=weft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
# One task per machine: torchrun starts the processes there. SIGTERM comes 300 s before the time limit, for a checkpoint.
set -euo pipefail
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=280 # by default torchrun kills its processes 30 s after SIGTERM

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-2}" --max-restarts 3 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
    -m weft pretrain "$1" -o "$2" --resume
