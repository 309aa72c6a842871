"""Libraries that do not run everywhere: how a lesson asks for one."""

import logging
import types


def load_bitsandbytes() -> types.ModuleType | None:
    """Return the module `bitsandbytes`, or print one sentence and return None if it cannot run here.

    "Can run" is tried: one small tensor is quantized on the CPU. Of an optional kernel for 4-bit
    models, which the course does not use, bitsandbytes would warn on import; that warning is off.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        import bitsandbytes
        import torch

        bitsandbytes.functional.quantize_blockwise(torch.ones(256), blocksize=256)
    except Exception as error:  # missing, built for another platform, or without its native part
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(
            f"bitsandbytes cannot run here ({reason}); the cells that use it do nothing, "
            "everything from scratch works."
        )
        return None
    return bitsandbytes
