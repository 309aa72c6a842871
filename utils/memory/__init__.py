"""Memory in bytes: what an optimizer's state takes, measured and predicted."""

from utils.memory.by_step import estimate_by_step
from utils.memory.held import measure_optimizer_state
from utils.memory.measured import (
    EMPTY_STATE,
    OptimizerStateSize,
    StateSize,
    compute_optimizer_size,
    describe_optimizer_state,
    size_by_state_name,
    state_table,
)
from utils.memory.parameters import (
    ParameterCount,
    TrainingBill,
    count_parameters,
    estimate_adamw_bytes,
    training_bill,
)
from utils.memory.plan import Plan, add_lora, checkpointed_activations, plan_training
from utils.memory.predicted import estimate_optimizer_state
from utils.memory.sharded import (
    estimate_fsdp_state,
    estimate_zero_state,
    rows_of_rank,
    zero_owners,
)
from utils.memory.slots import parameters_without_gradient
from utils.memory.trainer import OPTIMIZER_NAMES, estimate_trainer_state
from utils.memory.units import GIB, KIB, MIB, TIB, format_bytes, mb, mib

__all__ = [
    "EMPTY_STATE",
    "GIB",
    "KIB",
    "MIB",
    "OPTIMIZER_NAMES",
    "TIB",
    "OptimizerStateSize",
    "ParameterCount",
    "Plan",
    "StateSize",
    "TrainingBill",
    "add_lora",
    "checkpointed_activations",
    "compute_optimizer_size",
    "count_parameters",
    "describe_optimizer_state",
    "estimate_adamw_bytes",
    "estimate_by_step",
    "estimate_fsdp_state",
    "estimate_optimizer_state",
    "estimate_trainer_state",
    "estimate_zero_state",
    "format_bytes",
    "mb",
    "measure_optimizer_state",
    "mib",
    "parameters_without_gradient",
    "plan_training",
    "rows_of_rank",
    "size_by_state_name",
    "state_table",
    "training_bill",
    "zero_owners",
]
