"""What people reported in public about this kind of work, each with the right value.

Every case has an id (S state sizes, A Adafactor, B 8 bits, M the mathematics of Adam, T training,
D data, N notebooks, P platforms) and the thread in which somebody met it. A case is a test below, or
`ELSEWHERE` names the tests or the words of a lesson that cover it.
"""

import copy
import math
import os
import re
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from tests.test_notebooks import CANARIES
from utils.environment import ROOT, SOLUTIONS, THREADS
from utils.memory import (
    compute_optimizer_size,
    estimate_optimizer_state,
    format_bytes,
    measure_optimizer_state,
)
from utils.memory.trainer import trainer_groups
from utils.optimizers import Adafactor, AdamW, AdamW8bit, all_finite
from utils.optimizers.adafactor import adafactor_step
from utils.optimizers.adamw import adamw_step
from utils.release import code_cells, read

optim = torch.optim
BF16, COMPLEX = torch.bfloat16, torch.complex64
bnb = pytest.importorskip("bitsandbytes")
transformers = pytest.importorskip("transformers")
TransformersAdafactor = transformers.optimization.Adafactor

# id -> where it is covered: "file::test", "canary name" of tests/test_notebooks.py, or
# "lesson NN: words that stand in it".
ELSEWHERE = {
    "S03": ["test_memory.py::test_freezing_after_a_step_keeps_the_state"],
    "S10": ["test_adamw.py::test_bf16_weights_lose_small_updates_as_in_torch"],
    "S11": ["test_data.py::test_a_saved_half_precision_model_is_loaded_in_fp32"],
    "S17": ["test_memory.py::test_loading_a_state_casts_it_to_the_weights"],
    "S20": [
        "test_memory.py::test_a_parameter_resized_before_the_first_step_counts_with_its_new_shape"
    ],
    "S22": ["test_memory.py::test_a_skipped_first_step_leaves_no_state"],
    "A08": ["lesson 06: `AdafactorSchedule` is one that only reports"],
    "A09": ["test_adafactor.py::test_adams_betas_are_refused"],
    "A13": ["test_adafactor.py::test_decay_clipping_and_relative_step"],
    "B04": [
        "test_memory.py::test_trainer_names_and_options",
        "test_memory_matrix.py::test_every_optimizer_is_predicted_to_the_byte",
        "lesson 08: embeddings stay in 32 bits",
    ],
    "B05": ["test_memory.py::test_overrides_of_an_earlier_optimizer_are_predicted_and_reported"],
    "B07": ["test_adamw_8bit.py::test_first_step_equals_the_library"],
    "B12": ["lesson 07: outlier"],
    "B13": ["test_adamw_8bit.py::test_a_weight_without_gradient_stays"],
    "B14": ["test_memory.py::test_tensor_subclasses_are_looked_into"],
    "M04": ["test_adamw.py::test_decoupled_decay_is_multiplied_by_lr"],
    "T03": ["lesson 03: evaluate.load"],
    "T09": [
        "lesson 04: a bare loop gets the last, incomplete group wrong",
        "test_training.py::test_equal_to_trainer_at_every_step",
    ],
    "T13": ["test_checks_03.py::test_solution_blank_and_a_second_right_answer"],
    "D01": ["test_metrics.py::test_evaluate_interface_in_batches_and_combined"],
    "N01": ["canary stderr"],
    "N03": ["canary bare_figure"],
    "N04": ["canary pictures_swapped", "canary picture_garbage"],
    "N05": ["canary other_kernel"],
    "N07": ["canary never_executed", "canary one_cell_emptied"],
    "N10": [
        "test_setup.py::test_every_dependency_is_pinned_within_its_range_and_installed_as_pinned"
    ],
    "N11": ["test_notebooks.py::test_nbval_fails_exactly_the_cell_whose_stored_output_was_changed"],
}


def parameter(*shape, dtype=torch.float32):
    return nn.Parameter(torch.ones(shape, dtype=dtype))


def stepped(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # paged optimizers on the CPU
        optimizer.step()
    return optimizer


def linear(*size, dtype=torch.float32):
    return list(nn.Linear(*size).to(dtype).parameters())


def bert(hidden):
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=hidden, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=hidden, max_position_embeddings=8, type_vocab_size=2,
    )  # fmt: skip
    return list(transformers.BertForSequenceClassification(config).parameters())


# id, optimizer, bytes and elements as tensors are counted one by one (Python numbers left out).
SIZES = [
    ("S01", lambda: optim.AdamW(linear(13, 7)), 792, 198),
    ("S07", lambda: optim.AdamW([parameter(4)]), 36, 9),
    ("S08", lambda: optim.AdamW(linear(64, 64)), 33288, 8322),
    ("S08", lambda: optim.AdamW(linear(64, 64, dtype=BF16)), 16648, 8322),
    ("S08", lambda: optim.Adafactor(linear(64, 64)), 776, 194),
    ("S08", lambda: optim.Adafactor(linear(64, 64, dtype=BF16)), 392, 194),
    ("S08", lambda: TransformersAdafactor(linear(64, 64)), 776, 194),
    ("S08", lambda: TransformersAdafactor(linear(64, 64, dtype=BF16)), 776, 194),
    ("S13", lambda: optim.AdamW(linear(13, 7), amsgrad=True), 1184, 296),
    ("S13", lambda: bnb.optim.AdamW(linear(13, 7), amsgrad=True), 784, 196),
    ("S15", lambda: optim.AdamW([parameter(10, dtype=COMPLEX)]), 164, 21),
    ("S25", lambda: optim.AdamW(linear(64, 64), foreach=False), 33288, 8322),
    ("S25", lambda: optim.AdamW(linear(64, 64), foreach=True), 33288, 8322),
    ("S25", lambda: optim.AdamW(linear(64, 64), fused=True), 33288, 8322),
    ("S28", lambda: optim.AdamW([parameter(4032)]), 32260, 8065),
    ("S28", lambda: optim.AdamW([parameter(4032, dtype=BF16)]), 16132, 8065),
    ("S28", lambda: bnb.optim.AdamW([parameter(4032, dtype=BF16)]), 32256, 8064),
    ("S28", lambda: bnb.optim.AdamW8bit([parameter(4032, dtype=BF16)]), 32256, 8064),
    ("A02", lambda: optim.Adafactor([parameter(16, 8, 3, 3)]), 3076, 769),
    ("A02", lambda: TransformersAdafactor([parameter(16, 8, 3, 3)]), 3076, 769),
    *(
        ("A04", lambda cls=cls, shape=shape: cls([parameter(*shape)]), num_bytes, elements)
        for cls in (optim.Adafactor, TransformersAdafactor)
        for shape, num_bytes, elements in [
            ((), 8, 2),
            ((1,), 8, 2),
            ((7,), 32, 8),
            ((1, 7), 36, 9),
            ((7, 1), 36, 9),
        ]
    ),
    ("B01", lambda: bnb.optim.AdamW8bit([parameter(15)]), 120, 30),
    ("B01", lambda: bnb.optim.AdamW8bit([parameter(4095)]), 32760, 8190),
    ("B01", lambda: bnb.optim.AdamW8bit([parameter(4096)]), 10368, 8736),
    ("B01", lambda: bnb.optim.AdamW8bit([parameter(4097)]), 10378, 8740),
    ("B01", lambda: bnb.optim.AdamW8bit([parameter(5000)]), 12208, 10552),
    ("B03", lambda: bnb.optim.AdamW8bit([parameter(65536)]), 131072 + 2048 + 2048, 132096),
    ("B08", lambda: bnb.optim.PagedAdamW8bit([parameter(4096), parameter(64)]), 10880, 8864),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "num_bytes", "elements"),
    [case[1:] for case in SIZES],
    ids=[f"{case[0]}-{place}" for place, case in enumerate(SIZES)],
)
def test_state_sizes(build, num_bytes, elements):
    predicted = estimate_optimizer_state(build())
    optimizer = stepped(build())
    tensors = [
        {name: v for name, v in state.items() if isinstance(v, torch.Tensor)}
        for state in optimizer.state.values()
    ]
    mebibytes, counted = compute_optimizer_size(tensors)
    assert (mebibytes * 2**20, counted) == (num_bytes, elements)
    assert predicted == measure_optimizer_state(optimizer)


def test_s02_frozen_parameters():
    """https://github.com/pytorch/pytorch/issues/7338"""
    model = nn.Sequential(nn.Linear(13, 7), nn.Linear(7, 3))
    model[0].requires_grad_(False)
    optimizer = optim.AdamW(model.parameters())
    predicted = estimate_optimizer_state(optimizer)
    model(torch.ones(2, 13)).sum().backward()
    optimizer.step()
    assert predicted == measure_optimizer_state(optimizer)
    assert (predicted.bytes, predicted.elements) == (200, 50)
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_s04_an_unused_layer():
    """https://github.com/pytorch/pytorch/issues/9439"""
    used, unused = nn.Linear(64, 10), nn.Linear(4096, 10)
    for build, num_bytes in ((lambda p: optim.SGD(p, momentum=0.9), 2600), (optim.Adam, 5208)):
        optimizer = build([*used.parameters(), *unused.parameters()])
        assert estimate_optimizer_state(optimizer, unused.parameters()).bytes == num_bytes


def test_s06_tied_weights_in_two_groups():
    """https://github.com/zhuhanqing/APOLLO/issues/4"""
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match="more than one parameter group"):
        AdamW([{"params": model[0].parameters()}, {"params": model[1].parameters()}])
    assert sum(len(group["params"]) for group in trainer_groups(model)) == 1


def test_s07_the_same_parameter_twice():
    """https://github.com/pytorch/pytorch/issues/40967"""
    weight = parameter(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = optim.AdamW([weight, weight])
    assert estimate_optimizer_state(optimizer).bytes == 36
    with pytest.raises(ValueError, match=r"twice|duplicate"):
        AdamW([weight, weight])


def test_s16_float64_as_the_default():
    """https://github.com/pytorch/pytorch/pull/173901"""
    torch.set_default_dtype(torch.float64)
    try:
        sizes = [
            estimate_optimizer_state(optim.AdamW(nn.Linear(3, 2).parameters(), fused=fused)).bytes
            for fused in (False, True)
        ]
    finally:
        torch.set_default_dtype(torch.float32)
    assert sizes == [144, 136]


def test_s21_adagrad_allocates_at_once():
    """https://github.com/pytorch/pytorch/issues/76752"""
    model = nn.Linear(13, 7)
    lazy, eager = optim.AdamW(model.parameters()), optim.Adagrad(model.parameters())
    assert compute_optimizer_size(lazy.state.values()) == (0.0, 0)
    assert measure_optimizer_state(eager).bytes == estimate_optimizer_state(eager).bytes == 400


def test_s23_integer_steps_and_no_warning():
    """https://campus.datacamp.com/courses/efficient-ai-model-training-with-pytorch"""
    optimizer = stepped(TransformersAdafactor(linear(64, 64)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mebibytes, elements = compute_optimizer_size(optimizer.state.values())
    assert (mebibytes * 2**20, elements) == (792, 196)  # an int step is one int64 element
    held = measure_optimizer_state(optimizer)
    assert (held.bytes, held.elements) == (776, 194)  # tensors alone


def test_s26_low_rank_adapters():
    """https://github.com/huggingface/peft/issues/1514"""
    frozen = [parameter(20160 - 1536)]
    frozen[0].requires_grad_(False)
    adapters = [parameter(4, 96) for _ in range(4)]
    assert sum(p.numel() for p in adapters) == 1536
    assert estimate_optimizer_state(optim.AdamW([*frozen, *adapters])).bytes == 12304
    assert estimate_optimizer_state(optim.AdamW([parameter(50_462_720)])).bytes == 403_701_764


def test_s27_mib_and_mb():
    """https://github.com/huggingface/accelerate/pull/3383"""
    assert format_bytes(535_640_496) == "510.83 MiB"
    assert round(535_640_496 / 10**6, 2) == 535.64


def own_step(convention, weights, grad, steps=1, **options):
    weights = torch.as_tensor(weights, dtype=torch.float64)
    optimizer = Adafactor([p := nn.Parameter(weights.clone())], convention=convention, **options)
    for _ in range(steps):
        p.grad = torch.as_tensor(grad, dtype=torch.float64).expand_as(p).clone()
        optimizer.step()
    return p.detach()


FIXED = {"relative_step": False, "lr": 1e-2}


def test_a01_no_learning_rate_and_a_scheduler():
    """https://github.com/huggingface/transformers/issues/11612"""
    with pytest.raises(ValueError, match="relative_step"):
        Adafactor([parameter(3)], convention="transformers", lr=1e-3)
    with pytest.raises(ValueError, match="lr must be a finite number"):
        Adafactor([parameter(3)], convention="transformers", relative_step=False)
    assert "lr=None" in words_of("06")


@pytest.mark.parametrize("convention", ["torch", "transformers"])
def test_a02_a04_any_number_of_dimensions(convention):
    """https://github.com/huggingface/transformers/issues/11536"""
    library = {"torch": optim.Adafactor, "transformers": TransformersAdafactor}[convention]
    for shape in [(), (1,), (7,), (1, 7), (7, 1), (16, 8, 3, 3)]:
        own, theirs = parameter(*shape), parameter(*shape)
        stepped(Adafactor([own], convention=convention))
        stepped(library([theirs]))
        assert torch.allclose(own, theirs, atol=1e-6), shape


def test_a05_the_two_conventions():
    """https://github.com/pytorch/pytorch/pull/129905: a factor of the weights' size, here 2."""
    weights = [4.0, 0.0, 0.0, 0.0]  # root mean square 2
    grad = [2.0, 0.0, 0.0, 1.0]
    scaled = own_step("transformers", weights, grad, **FIXED)
    plain = own_step("transformers", weights, grad, **FIXED, scale_parameter=False)
    torchs = own_step("torch", weights, grad, lr=1e-2)
    moved = torch.tensor(weights, dtype=torch.float64)
    assert torch.allclose(moved - scaled, 2 * (moved - plain), atol=1e-9)
    assert torch.allclose(scaled, torchs, atol=1e-9)


def test_a06_weights_of_zero():
    """https://github.com/facebookresearch/ParlAI/pull/2443"""
    for convention, options, expected in [
        ("transformers", FIXED, -1e-5),
        ("transformers", {**FIXED, "scale_parameter": False}, -1e-2),
        ("torch", {"lr": 1e-2}, -1e-5),
    ]:
        got = own_step(convention, [0.0] * 4, 1.0, **options)
        assert torch.allclose(got, torch.full_like(got, expected), rtol=1e-3), convention


@pytest.mark.parametrize("convention", ["torch", "transformers"])
def test_a07_a_row_without_gradient(convention):
    """https://github.com/microsoft/LLM2CLIP/issues/64"""
    options = {"lr": 1e-2} if convention == "torch" else FIXED
    own = own_step(convention, torch.ones(2, 2), [[0.0, 0.0], [0.0, 0.0]], steps=2, **options)
    assert own.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    half = own_step(convention, torch.ones(2, 2), [[0.0, 0.0], [1.0, 1.0]], steps=2, **options)
    assert half[0].tolist() == [1.0, 1.0]
    assert torch.isfinite(half).all()


def test_a11_weight_decay_of_each_library():
    """https://github.com/huggingface/transformers/issues/19387"""
    options = {"lr": 0.1, "weight_decay": 0.5}
    found = {
        "hf": own_step(
            "transformers", [4.0], 1.0, relative_step=False, scale_parameter=False, **options
        ),
        "hf_scale": own_step("transformers", [4.0], 1.0, relative_step=False, **options),
        "torch": own_step("torch", [4.0], 1.0, **options),
    }
    rounded = {name: round(value.item(), 4) for name, value in found.items()}
    assert rounded == {"hf": 3.7, "hf_scale": 2.8, "torch": 3.4}


def test_b09_default_weight_decays():
    """https://github.com/facebookresearch/bitsandbytes/issues/13"""
    found = []
    for cls in (optim.Adam, optim.AdamW, bnb.optim.Adam, bnb.optim.AdamW, AdamW, AdamW8bit):
        weight = parameter(1)
        found.append(cls([weight]).defaults["weight_decay"])
    assert found == [0, 0.01, 0, 0.01, 0.01, 0.01]


def test_b11_the_two_code_maps():
    """https://github.com/inclusionAI/Ling-V2/issues/13"""
    from utils.optimizers.quantization import dynamic_codebook

    signed, unsigned = dynamic_codebook(True), dynamic_codebook(False)
    assert round(signed.min().item(), 6) == -0.992969
    assert signed.max() == unsigned.max() == 1.0
    assert int((signed == 0).nonzero()) == 127
    assert int((unsigned == 0).nonzero()) == 0
    assert f"{unsigned[1].item():.3g}" == "3.25e-07"


def test_b12_an_outlier_stays_in_its_block():
    """https://github.com/huggingface/transformers/issues/14819"""
    from utils.optimizers.quantization import (
        dequantize_blockwise,
        dynamic_codebook,
        quantize_blockwise,
    )

    moment = torch.full((512,), 1e-4)
    moment[0] = 100.0
    book = dynamic_codebook(True)
    back = dequantize_blockwise(*quantize_blockwise(moment, book), book)
    assert f"{back[1].item():.2g}" == "5.5e-05"
    assert torch.allclose(back[256:], moment[256:], rtol=1e-6)


def test_b15_sparse_gradients_are_refused_in_words():
    """https://github.com/pytorch/pytorch/issues/41966"""
    layer = nn.Embedding(100, 64, sparse=True)
    layer(torch.tensor([1, 2])).sum().backward()
    for cls, options in ((AdamW8bit, {}), (AdamW, {}), (Adafactor, {"convention": "torch"})):
        with pytest.raises((TypeError, RuntimeError), match="sparse"):
            cls(layer.parameters(), **options).step()


def test_m01_epsilon_comes_after_the_bias_correction():
    """https://github.com/huggingface/transformers/issues/35504"""
    one = torch.ones(1, dtype=torch.float64)
    weight, *_ = adamw_step(one, one * 0.5, one * 0, one * 0, 1, lr=0.1, eps=0.1, weight_decay=0.0)
    assert round(weight.item(), 9) == 0.916666667


@pytest.mark.parametrize(
    ("gradient", "expected"), [(1000.0, 0.1), (1e-3, 0.099999), (1e-8, 0.05), (1e-10, 0.0009901)]
)
def test_m02_the_first_step(gradient, expected):
    """https://github.com/karpathy/nanochat/pull/353"""
    zero = torch.zeros(1, dtype=torch.float64)
    weight, *_ = adamw_step(
        zero, zero + gradient, zero, zero, 1, lr=0.1, eps=1e-8, weight_decay=0.0
    )
    assert math.isclose(-weight.item(), expected, rel_tol=1e-4)


def test_m05_zero_gradient_and_none():
    """https://github.com/pytorch/pytorch/issues/18404"""
    for second, moves in ((torch.zeros(1), True), (None, False)):
        weight = parameter(1)
        optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
        stepped(optimizer)
        before = weight.item()
        weight.grad = second
        optimizer.step()
        assert (weight.item() != before) == moves
        assert optimizer.state[weight]["step"].item() == (2 if moves else 1)
        assert round(weight.item(), 4) == (0.833 if moves else 0.9)


def test_m06_a_bad_gradient_is_seen_before_it_spoils_the_state():
    """https://github.com/anthonytorlucci/rlevo/issues/184"""
    for bad in (math.nan, math.inf, -math.inf):
        assert not all_finite([torch.ones(3), torch.tensor([0.0, bad])])
    weight = parameter(4096)
    optimizer = AdamW8bit([weight])
    weight.grad = torch.full_like(weight, math.nan)
    with pytest.raises(ValueError, match="NaN or infinity"):
        optimizer.step()


def test_m08_stored_moments_stay_uncorrected():
    """https://github.com/frgfm/holocron/issues/1"""
    weight = parameter(1, dtype=torch.float64)
    optimizer = AdamW([weight])
    for _ in range(3):
        weight.grad = torch.full_like(weight, 2.0)
        optimizer.step()
    state = optimizer.state[weight]
    assert round(state["exp_avg"].item(), 9) == 0.542
    assert round(state["exp_avg_sq"].item(), 12) == 0.011988004


def words_of(number):
    (path,) = SOLUTIONS.glob(f"{number}_*.ipynb")
    return "\n".join(cell.source for cell in read(path).cells)


OLD_FORMS = {
    "T01": r"evaluation_strategy|no_cuda|overwrite_output_dir|logging_dir|warmup_ratio|adafactor=True|save_safetensors",
    "T02": r"Trainer\([^)]*\btokenizer=",
    "T03": r"transformers import [^\n]*\bAdamW\b|load_metric",
    "D05": r"load_dataset\(\s*[\"']glue[\"']",
}


@pytest.mark.parametrize("case", OLD_FORMS)
def test_no_lesson_uses_a_form_that_is_gone(case):
    """https://github.com/huggingface/course/issues/974 and others"""
    sources = [c.source for path in SOLUTIONS.glob("*.ipynb") for c in code_cells(read(path))]
    # A lesson may show what happens to the old form.
    sources = [source for source in sources if "except TypeError" not in source]
    sources += [path.read_text() for path in (ROOT / "utils").rglob("*.py")]
    sources += [(ROOT / "README.md").read_text()]
    found = [match for source in sources if (match := re.search(OLD_FORMS[case], source))]
    assert found == []


def test_t01_t02_the_forms_that_are_gone_are_really_gone():
    for old in OLD_FORMS["T01"].split("|"):
        name = old.removesuffix("=True")
        with pytest.raises(TypeError, match=name):
            transformers.TrainingArguments(**{name: None})
    with pytest.raises(TypeError, match="tokenizer"):
        transformers.Trainer(model=nn.Linear(1, 1), tokenizer=None)


def test_t05_an_optimizer_of_another_model_is_seen():
    """https://github.com/huggingface/transformers/issues/18635: nothing moves, and no state."""
    model = nn.Linear(2, 2)
    optimizer = optim.AdamW(copy.deepcopy(model).parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert compute_optimizer_size(optimizer.state.values()) == (0.0, 0)
    held = measure_optimizer_state(optimizer)
    assert "empty" in held.notes[0]


ACCUMULATION = """
import torch, warnings
from accelerate import Accelerator
from torch.utils.data import DataLoader
from utils.training import update_steps

first = Accelerator(gradient_accumulation_steps=4, cpu=True)
weight = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(weight.weight)
optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
model, optimizer, loader = first.prepare(weight, optimizer, DataLoader(torch.ones(5, 1)))
seen = []
for batch in loader:
    with first.accumulate(model):
        first.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    seen.append(weight.weight.item())
print(seen, update_steps(5, 1, 1, 4))
Accelerator(cpu=True)
print(first.gradient_accumulation_steps)
"""


def test_t08_t12_accumulation_in_a_bare_loop():
    """https://github.com/huggingface/accelerate/issues/1847 and pull/1431, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ACCUMULATION],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == ["[0.0, 0.0, 0.0, -1.0, -1.25] 2", "1"], done.stderr


def test_t06_the_schedule_has_the_steps_of_the_unprepared_loader():
    """https://github.com/huggingface/accelerate/issues/2926"""
    from utils.training import update_steps

    assert update_steps(8 * 32, 32, 1) == 8
    source = (ROOT / "utils/training.py").read_text()
    assert source.index("steps = update_steps(") < source.index("accelerator.prepare(")


def test_d02_metrics_need_no_script_from_anywhere():
    """https://github.com/huggingface/evaluate/issues/567"""
    import evaluate

    from utils import metrics

    assert isinstance(metrics.Accuracy(), evaluate.Metric)
    assert metrics.load().compute(predictions=[1, 0], references=[1, 1])["accuracy"] == 0.5


def test_d06_tokenizers_do_not_run_in_parallel():
    """https://github.com/huggingface/transformers/issues/5486"""
    assert THREADS["TOKENIZERS_PARALLELISM"] == "false"


def test_n02_no_output_is_updated_after_it_was_shown():
    """https://github.com/Ouranosinc/pavics-sdi/pull/323"""
    for path in SOLUTIONS.glob("*.ipynb"):
        for cell in code_cells(read(path)):
            assert not re.search(r"display_id|clear_output|update_display", cell.source), path
            if re.search(r"(?<!accelerator)\btrainer\.train\(\)", cell.source):
                assert "PrinterCallback" in "\n".join(c.source for c in code_cells(read(path)))


def test_n06_a_cell_has_a_time_limit_of_its_own():
    """https://github.com/computationalmodelling/nbval/issues/151"""
    assert re.search(r"--nbval-cell-timeout=\d+", (ROOT / "Makefile").read_text())


def test_n09_progress_bars_find_their_widgets():
    """https://github.com/huggingface/datasets/issues/3621"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", "import ipywidgets, datasets, tqdm.auto"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "IProgress" not in done.stderr


def test_p01_scalars_are_python_numbers():
    """https://github.com/pytorch/pytorch/issues/122602: no float64 tensor, which MPS lacks."""
    one = torch.ones(2)
    results = adamw_step(one, one, one * 0, one * 0, 1, lr=1e-3, eps=1e-8, weight_decay=0.01)
    new, statistics = adafactor_step(one, one, (one * 0,), 1, convention="torch", lr=1e-2)
    assert {t.dtype for t in [*results, new, *statistics]} == {torch.float32}


def test_p02_loaders_have_no_worker_processes():
    """https://github.com/pytorch/pytorch/issues/51344"""
    sources = [c.source for path in SOLUTIONS.glob("*.ipynb") for c in code_cells(read(path))]
    sources += [path.read_text() for path in (ROOT / "utils").rglob("*.py")]
    assert not any(re.search(r"num_workers\s*=\s*[1-9]", source) for source in sources)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_covers_a_case_is_there(case):
    for place in ELSEWHERE[case]:
        if match := re.fullmatch(r"(\w+\.py)::(\w+)", place):
            assert f"def {match[2]}(" in (ROOT / "tests" / match[1]).read_text(), place
        elif match := re.fullmatch(r"canary (\w+)", place):
            assert match[1] in {change.__name__ for change, _ in CANARIES}, place
        else:
            number, words = re.fullmatch(r"lesson (\d\d): (.+)", place).groups()
            assert words in words_of(number), place
