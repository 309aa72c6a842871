"""Optimizer memory on small tensors: counting, measuring, predicting, and asking wrongly."""

import itertools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from utils import memory
from utils.memory import (
    MIB,
    compute_optimizer_size,
    count_parameters,
    describe_optimizer_state,
    estimate_adamw_bytes,
    estimate_by_step,
    estimate_optimizer_state,
    estimate_trainer_state,
    format_bytes,
    measure_optimizer_state,
    parameters_without_gradient,
    size_by_state_name,
    training_bill,
)
from utils.memory.trainer import trainer_groups

optim = torch.optim
BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def bnb():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import bitsandbytes

    return bitsandbytes


@pytest.fixture(autouse=True)
def no_overrides(bnb):
    """bitsandbytes keeps overrides for the whole process: no test may leave any to the next."""
    manager = bnb.optim.GlobalOptimManager.get_instance()
    manager.initialize()
    yield manager
    manager.initialize()


def fill_gradients(optimizer):
    """Give every parameter a gradient whose elements differ."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            values = torch.linspace(-1.0, 2.0, p.numel()).reshape(p.shape)
            p.grad = values.to(p.dtype)


def stepped(optimizer):
    fill_gradients(optimizer)
    optimizer.step()
    return optimizer


def backward(model, width):
    """Run one real backward pass."""
    model(torch.linspace(-1, 1, 2 * width).reshape(2, width)).square().sum().backward()


def exact(optimizer):
    """Predict, step with filled gradients, demand equality, and return (bytes, elements)."""
    predicted = estimate_optimizer_state(optimizer)
    measured = measure_optimizer_state(stepped(optimizer))
    assert predicted == measured
    assert predicted.bytes == sum(s.bytes for s in measured.by_name.values())
    return measured.bytes, measured.elements


def parameter(*shape, dtype=torch.float32):
    return nn.Parameter(
        torch.linspace(-1.0, 1.0, torch.Size(shape).numel()).reshape(shape).to(dtype)
    )


def linears(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(widths)))


# Counting as the lessons do


def test_step_tensor_is_counted_with_the_two_moments():
    adamw = stepped(optim.AdamW(nn.Linear(13, 7).parameters()))
    assert compute_optimizer_size(adamw.state.values()) == (792 / MIB, 198)
    sizes = size_by_state_name(adamw.state.values())
    assert {k: (s.tensors, s.elements, s.bytes) for k, s in sizes.items()} == {
        "step": (2, 2, 8),
        "exp_avg": (2, 98, 392),
        "exp_avg_sq": (2, 98, 392),
    }


def test_python_numbers_count_as_the_tensors_torch_makes_of_them():
    state = [{"step": 3, "flag": True, "rate": 0.5, "nothing": None, "row": torch.ones(5)}]
    sizes = size_by_state_name(state)
    assert {k: (s.elements, s.bytes) for k, s in sizes.items()} == {
        "step": (1, 8),
        "flag": (1, 1),
        "rate": (1, 4),
        "row": (5, 20),
    }
    assert compute_optimizer_size(state) == (33 / MIB, 8)


def test_items_of_containers_count_one_by_one():
    state = [{"history": [torch.ones(3), 2, (torch.ones(2, dtype=BF16), {"a": 1.0})]}]
    assert compute_optimizer_size(state) == ((12 + 8 + 4 + 4) / MIB, 3 + 1 + 2 + 1)


def test_counting_makes_no_warning():
    adamw = stepped(optim.AdamW(nn.Linear(13, 7).parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compute_optimizer_size(adamw.state.values())


def test_transformers_int_steps_count_as_int64_here_and_not_in_memory():
    from transformers.optimization import Adafactor

    adafactor = stepped(Adafactor(nn.Linear(64, 64).parameters(), lr=1e-3, relative_step=False))
    assert compute_optimizer_size(adafactor.state.values()) == (792 / MIB, 196)
    measured = measure_optimizer_state(adafactor)
    assert (measured.bytes, measured.elements) == (776, 194)


def test_no_step_yet_is_zero_and_said_in_words():
    adamw = optim.AdamW(nn.Linear(13, 7).parameters())
    assert compute_optimizer_size(adamw.state.values()) == (0.0, 0)
    assert "has not taken a step" in describe_optimizer_state(adamw.state.values())
    measured = measure_optimizer_state(adamw)
    assert measured.bytes == 0
    assert "has not taken a step" in measured.notes[0]


def test_a_skipped_first_step_leaves_no_state():
    model = nn.Linear(4, 4)
    adamw = optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scaler.scale(model(torch.full((1, 4), 3e38)).sum()).backward()
    scaler.step(adamw)
    assert compute_optimizer_size(adamw.state.values()) == (0.0, 0)
    assert "skipped" in describe_optimizer_state(adamw.state.values())


def test_description_has_a_line_for_each_state_and_a_total():
    adamw = stepped(optim.AdamW([parameter(300, 500)]))
    lines = describe_optimizer_state(adamw.state.values()).splitlines()
    assert [line.split()[0] for line in lines] == [
        "state",
        "step",
        "exp_avg",
        "exp_avg_sq",
        "total",
    ]
    assert lines[2].split()[1:4] == ["1", "150,000", "600,000"]
    assert lines[4].split()[1:4] == ["3", "300,001", "1,200,004"]
    assert lines[4].endswith("= 1.14 MiB")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o: o, "the optimizer itself (AdamW)"),
        (lambda o: o.state, "such as optimizer.state"),
        (lambda o: o.state_dict(), "state_dict"),
        (lambda o: o.param_groups[0]["params"], "got Parameter"),
        (lambda o: torch.ones(3), "got a Tensor"),
        (lambda o: 7, "got a int"),
        (lambda o: "exp_avg", "got a str"),
    ],
)
def test_what_is_not_the_state_values_is_refused(make, words):
    adamw = stepped(optim.AdamW(nn.Linear(3, 2).parameters()))
    with pytest.raises(TypeError) as error:
        compute_optimizer_size(make(adamw))
    assert words in str(error.value)
    assert "optimizer.state.values()" in str(error.value)


def test_a_state_value_that_cannot_be_counted_is_named():
    with pytest.raises(TypeError, match="'mode' holds a str"):
        compute_optimizer_size([{"mode": "fast"}])


def test_a_state_dict_can_be_counted_through_its_state():
    adamw = stepped(optim.AdamW(nn.Linear(13, 7).parameters()))
    assert compute_optimizer_size(adamw.state_dict()["state"].values()) == (792 / MIB, 198)


# Units, parameters, the bill


def test_units_say_which_megabyte():
    num_bytes = estimate_adamw_bytes(66_955_010) + 104 * 4
    assert num_bytes == 535_640_496
    assert round(memory.mib(num_bytes), 2) == 510.83
    assert round(memory.mb(num_bytes), 2) == 535.64
    assert format_bytes(num_bytes) == "510.83 MiB"
    assert format_bytes(num_bytes, decimal=True) == "535.64 MB"
    half = estimate_adamw_bytes(66_955_010, bytes_per_value=2) + 104 * 4
    assert format_bytes(half) == "255.41 MiB"
    assert [format_bytes(n) for n in (0, 1, 1023, 1024, 3 * 1024**3)] == [
        "0 bytes",
        "1 byte",
        "1,023 bytes",
        "1.00 KiB",
        "3.00 GiB",
    ]


def test_the_rule_of_thumb_is_eight_bytes_a_parameter():
    assert estimate_adamw_bytes(65_783_042) == 526_264_336
    assert estimate_adamw_bytes(10, states=3) == 120
    with pytest.raises(
        ValueError, match="num_parameters must be a whole number of at least 0, got -1"
    ):
        estimate_adamw_bytes(-1)


class Tied(nn.Module):
    """An embedding and a head that share one matrix."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_parameters_are_counted_once_and_by_kind():
    model = nn.Sequential(Tied(), nn.Linear(3, 2))
    model[1].weight.requires_grad_(False)
    count = count_parameters(model)
    assert (count.total, count.trainable, count.frozen) == (15 + 6 + 2, 17, 6)
    assert (count.tensors, count.trainable_tensors, count.tied) == (3, 2, 1)
    with torch.device("meta"):
        on_meta = nn.Sequential(Tied(), nn.Linear(3, 2))
    on_meta[1].weight.requires_grad_(False)
    assert count_parameters(on_meta) == count


def test_the_bill_is_sixteen_bytes_a_parameter_and_four_a_tensor():
    model = linears(13, 7, 3)
    bill = training_bill(model)
    assert (bill.weights, bill.gradients, bill.first_moment, bill.second_moment) == (488,) * 4
    assert (bill.steps, bill.total) == (16, 16 * 122 + 16)
    assert bill.optimizer == measure_optimizer_state(stepped(optim.AdamW(model.parameters()))).bytes
    model[0].requires_grad_(False)
    bill = training_bill(model)
    assert (bill.weights, bill.gradients, bill.optimizer) == (488, 96, 2 * 96 + 8)
    assert bill.bytes_per_parameter == (488 + 3 * 96 + 8) / 122


def test_counting_refuses_what_is_no_model():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got list"):
        count_parameters([parameter(3)])
    with pytest.raises(ValueError, match="run one batch"):
        count_parameters(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        training_bill(nn.ReLU())


# Which parameters hold state


def test_frozen_parameters_hold_none():
    model = linears(13, 7, 3)
    model[0].requires_grad_(False)
    adamw = optim.AdamW(model.parameters())
    predicted = estimate_optimizer_state(adamw)
    backward(model, 13)
    adamw.step()
    assert predicted == measure_optimizer_state(adamw)
    assert (predicted.bytes, predicted.elements) == (200, 50)
    assert predicted.notes == ("2 tensors (98 elements) frozen: no gradient, no state.",)


def test_freezing_after_a_step_keeps_the_state():
    model = nn.Linear(7, 3)
    adamw = stepped(optim.AdamW(model.parameters()))
    model.requires_grad_(False)
    assert measure_optimizer_state(adamw).bytes == 200
    with pytest.raises(ValueError, match="holds state already"):
        estimate_optimizer_state(adamw)


def test_freezing_before_the_step_with_a_gradient_in_place_still_makes_state():
    model = nn.Linear(7, 3)
    adamw = optim.AdamW(model.parameters())
    backward(model, 7)
    model.requires_grad_(False)
    predicted = estimate_optimizer_state(adamw)
    adamw.step()
    assert predicted == measure_optimizer_state(adamw)
    assert predicted.bytes == 200


class PartlyUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(64, 10)
        self.fc = nn.Linear(4096, 10)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), (2600, 650)),
        (optim.Adam, (5208, 1302)),
    ],
)
def test_unused_parameters_hold_none(make, expected):
    model = PartlyUsed()
    with torch.device("meta"):
        empty = PartlyUsed()
        unused = parameters_without_gradient(empty, empty(torch.ones(1, 64)).sum())
    assert list(unused) == ["fc.weight", "fc.bias"]
    before = estimate_optimizer_state(make(empty.parameters()), unused.values())
    optimizer = make(model.parameters())
    backward(model, 64)
    after = estimate_optimizer_state(optimizer)
    optimizer.step()
    assert before == after == measure_optimizer_state(optimizer)
    assert (before.bytes, before.elements) == expected
    assert "listed as unused" in before.notes[0]
    assert "others have a gradient" in after.notes[0]


def test_unused_must_name_parameters_without_gradient():
    adamw = optim.AdamW([parameter(3, 2)])
    with pytest.raises(ValueError, match="is not optimized"):
        estimate_optimizer_state(adamw, [parameter(4, 5)])
    with pytest.raises(TypeError, match="got str"):
        estimate_optimizer_state(adamw, ["weight"])
    fill_gradients(adamw)
    with pytest.raises(ValueError, match="that has a gradient"):
        estimate_optimizer_state(adamw, adamw.param_groups[0]["params"])


def test_tied_weights_count_once_and_stand_in_one_group():
    model = Tied()
    groups = trainer_groups(model)
    assert [len(g["params"]) for g in groups] == [1, 0]
    assert exact(optim.AdamW(groups)) == (8 * 15 + 4, 31)


@pytest.mark.parametrize("foreach", [False, True])
def test_a_parameter_listed_twice_holds_one_state(foreach):
    w = parameter(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adamw = optim.AdamW([w, w], foreach=foreach)
    assert exact(adamw) == (36, 9)


def test_only_the_adapters_of_a_low_rank_model_hold_state():
    class LowRank(nn.Module):
        def __init__(self, d, r):
            super().__init__()
            self.w = nn.Linear(d, d).requires_grad_(False)
            self.a = nn.Linear(d, r, bias=False)
            self.b = nn.Linear(r, d, bias=False)

        def forward(self, x):
            return self.w(x) + self.b(self.a(x))

    model = nn.Sequential(LowRank(96, 4), LowRank(96, 4))
    count = count_parameters(model)
    assert (count.trainable, count.total) == (1536, 20160)
    adamw = optim.AdamW(model.parameters())
    predicted = estimate_optimizer_state(adamw)
    backward(model, 96)
    adamw.step()
    assert predicted == measure_optimizer_state(adamw)
    assert (predicted.bytes, predicted.elements) == (12304, 3076)


def test_groups_have_their_own_options():
    groups = [
        {"params": [parameter(5, 3)], "amsgrad": True},
        {"params": [parameter(2, 7), parameter(11)]},
    ]
    assert exact(optim.AdamW(groups)) == (12 * 15 + 4 + 8 * 25 + 8, 3 * 15 + 2 * 25 + 3)
    groups = [{"params": [parameter(5, 3)], "momentum": 0.9}, {"params": [parameter(2, 7)]}]
    assert exact(optim.SGD(groups, lr=0.1)) == (60, 15)


def test_a_parameter_resized_before_the_first_step_counts_with_its_new_shape():
    embedding = nn.Embedding(997, 6)
    adamw = optim.AdamW(embedding.parameters())
    embedding.weight.data = torch.ones(1001, 6)
    assert exact(adamw) == (8 * 6006 + 4, 2 * 6006 + 1)


# Dtypes


def test_which_states_follow_the_weights_into_bf16(bnb):
    from transformers.optimization import Adafactor

    def sizes(make):
        return [exact(make(nn.Linear(64, 64).to(d).parameters())) for d in (torch.float32, BF16)]

    assert sizes(optim.AdamW) == [(33288, 8322), (16648, 8322)]
    assert sizes(optim.Adafactor) == [(776, 194), (392, 194)]
    assert sizes(Adafactor) == [(776, 194), (776, 194)]
    for make, expected in (
        (optim.AdamW, [32260, 16132]),
        (bnb.optim.AdamW, [32256, 32256]),
        (bnb.optim.AdamW8bit, [32256, 32256]),
    ):
        assert [exact(make([parameter(64, 63, dtype=d)]))[0] for d in (torch.float32, BF16)] == (
            expected
        )


@pytest.mark.parametrize("kind", ["foreach", "fused", "loop"])
def test_the_three_implementations_of_adamw_hold_the_same(kind):
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}
    assert exact(optim.AdamW(nn.Linear(64, 64).parameters(), **options[kind])) == (33288, 8322)


def test_capturable_state_is_the_same_though_its_step_needs_another_device():
    adamw = optim.AdamW([parameter(5, 3)], capturable=True, foreach=False)
    predicted = estimate_optimizer_state(adamw)
    fill_gradients(adamw)
    with pytest.raises(AssertionError, match="supported devices"):
        adamw.step()
    assert predicted == measure_optimizer_state(adamw)  # the state was laid out before


def test_complex_parameters_count_twice_a_real_one():
    assert exact(optim.AdamW([parameter(10, dtype=torch.complex64)])) == (164, 21)
    for make, words in (
        (optim.Adafactor, "does not support complex"),
        (lambda p: optim.AdamW(p, fused=True), "fused=True"),
    ):
        with pytest.raises(ValueError, match=words):
            estimate_optimizer_state(make([parameter(10, dtype=torch.complex64)]))


@pytest.mark.parametrize(("fused", "expected"), [(False, 144), (True, 136)])
def test_a_float64_default_dtype_makes_steps_of_eight_bytes(fused, expected):
    torch.set_default_dtype(torch.float64)
    try:
        assert exact(optim.AdamW(nn.Linear(3, 2).parameters(), fused=fused))[0] == expected
        assert training_bill(nn.Linear(3, 2)).steps == 16
        assert exact(optim.RMSprop([parameter(3, 5, dtype=torch.float64)]))[0] == 8 + 8 * 15
        assert exact(optim.Adafactor([parameter(3, 5, dtype=torch.float64)]))[0] == 8 + 8 * 8
    finally:
        torch.set_default_dtype(torch.float32)


def test_loading_a_state_casts_it_to_the_weights():
    full = stepped(optim.AdamW(nn.Linear(64, 64).parameters()))
    half = optim.AdamW(nn.Linear(64, 64).to(BF16).parameters())
    half.load_state_dict(full.state_dict())
    again = optim.AdamW(nn.Linear(64, 64).parameters())
    again.load_state_dict(half.state_dict())
    sizes = [measure_optimizer_state(o).bytes for o in (full, half, again)]
    assert sizes == [33288, 16648, 33288]


def test_the_gradients_dtype_decides_where_the_state_is_made_from_it():
    for make, expected in (
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 4 * 15),
        (optim.Adafactor, 4 + 4 * 8),
        (optim.AdamW, 4 + 2 * 2 * 15),
    ):
        p = parameter(5, 3, dtype=BF16)
        p.grad_dtype = torch.float32
        assert estimate_optimizer_state(make([p])).bytes == expected


# Optimizers


def test_adagrad_allocates_before_any_step_and_keeps_its_dtype():
    model = nn.Linear(13, 7)
    adagrad = optim.Adagrad(model.parameters())
    assert compute_optimizer_size(adagrad.state.values()) == (400 / MIB, 100)
    model.to(torch.float64)
    predicted = estimate_optimizer_state(adagrad)
    assert (predicted.bytes, predicted.elements) == (400, 100)
    assert predicted == measure_optimizer_state(stepped(adagrad))


def test_amsgrad_is_a_third_tensor_in_torch_and_ignored_by_bitsandbytes(bnb):
    assert exact(optim.AdamW(nn.Linear(13, 7).parameters(), amsgrad=True)) == (1184, 296)
    assert exact(bnb.optim.AdamW(nn.Linear(13, 7).parameters(), amsgrad=True)) == (784, 196)


def test_adafactor_factors_the_last_two_dimensions():
    from transformers.optimization import Adafactor

    for make, names in (
        (optim.Adafactor, ("row_var", "col_var", "step")),
        (Adafactor, ("exp_avg_sq_row", "exp_avg_sq_col", "RMS")),
    ):
        adafactor = make([parameter(16, 9, 5, 3)])
        predicted = estimate_optimizer_state(adafactor)
        assert [predicted.by_name[n].elements for n in names] == [16 * 9 * 5, 16 * 9 * 3, 1]
        assert predicted == measure_optimizer_state(stepped(adafactor))
        assert exact(make([parameter(16, 8, 3, 3)])) == (3076, 769)
        # Nothing is saved on a 1x1 convolution.
        assert exact(make([parameter(64, 64, 1, 1)]))[0] == 32_772


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (8, 2)), ((1,), (8, 2)), ((7,), (32, 8)), ((1, 7), (36, 9)), ((7, 1), (36, 9))],
)
def test_adafactor_on_scalars_vectors_and_thin_matrices(shape, expected):
    from transformers.optimization import Adafactor

    assert exact(Adafactor([parameter(*shape)])) == expected
    assert exact(optim.Adafactor([parameter(*shape)])) == expected


def test_adafactor_in_torch_refuses_an_empty_parameter():
    with pytest.raises(ValueError, match=r"shape \(3, 0\)"):
        estimate_optimizer_state(optim.Adafactor([parameter(3, 0)]))
    assert exact(optim.AdamW([parameter(3, 0)])) == (4, 1)


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (15, (120, 30)),
        (4095, (32760, 8190)),
        (4096, (10368, 8736)),
        (4097, (10378, 8740)),
        (5000, (12208, 10552)),
    ],
)
def test_bitsandbytes_quantizes_from_4096_elements_on(bnb, n, expected):
    assert exact(bnb.optim.AdamW8bit([parameter(n)])) == expected


def test_bitsandbytes_keeps_one_scale_a_block_of_256(bnb):
    for n, blocks in ((4096, 16), (4097, 17), (65536, 256)):
        predicted = estimate_optimizer_state(bnb.optim.AdamW8bit([parameter(n)]))
        assert predicted.by_name["absmax1"].elements == blocks
        assert predicted.by_name["absmax1"].bytes == 4 * blocks


def test_the_threshold_of_bitsandbytes_is_an_option(bnb):
    assert exact(bnb.optim.AdamW8bit([parameter(4096)], min_8bit_size=16384)) == (32768, 8192)


def test_code_maps_are_shared_and_the_sum_per_tensor_counts_them_again(bnb):
    adamw = bnb.optim.AdamW8bit([parameter(64, 65), parameter(80, 64), parameter(9)])
    held, _ = exact(adamw)
    assert held == 2 * (4160 + 5120) + 8 * (17 + 20) + 8 * 9 + 2048
    counted, _ = compute_optimizer_size(adamw.state.values())
    assert counted * MIB == held + 2048 + 3 * 8  # the maps of the second tensor, three int steps


def test_paged_optimizers_hold_the_same_on_the_cpu(bnb):
    paged = bnb.optim.PagedAdamW8bit([parameter(64, 64), parameter(64)])
    predicted = estimate_optimizer_state(paged)
    with pytest.warns(UserWarning, match="Paged optimizers are not supported on CPU"):
        stepped(paged)
    assert predicted == measure_optimizer_state(paged)
    assert (predicted.bytes, predicted.elements) == (10880, 8864)


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [("Lion8bit", 1), ("RMSprop8bit", 1), ("AdEMAMix8bit", 3), ("AdEMAMix", 12), ("LAMB", 8)],
)
def test_other_optimizers_of_bitsandbytes(bnb, name, state_bytes):
    n = 5000
    maps, scales = {1: (1024, 80), 3: (2048, 240)}.get(state_bytes, (0, 0))
    # LAMB keeps one float more, for the norm of the update.
    expected = state_bytes * n + maps + scales + 4 * (name == "LAMB")
    assert exact(getattr(bnb.optim, name)([parameter(n)]))[0] == expected


def test_overrides_of_an_earlier_optimizer_are_predicted_and_reported(bnb, no_overrides):
    first = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 64))
    no_overrides.register_module_override(first[0], "weight", {"optim_bits": 32})
    own = bnb.optim.AdamW8bit(first.parameters())
    predicted = estimate_optimizer_state(own)
    assert no_overrides.index2config == {}  # predicting registers nothing
    assert "registered for modules of this model" in predicted.notes[0]
    assert predicted == measure_optimizer_state(stepped(own))

    def unrelated():
        model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64))
        return bnb.optim.AdamW8bit(model.parameters())

    leaked = unrelated()
    (note,) = estimate_optimizer_state(leaked).notes
    assert note.startswith("+48,896 bytes: 1 tensor (8,192 elements) changed by overrides")
    assert "get_instance().initialize() removes them" in note
    assert exact(leaked) == (85_760, 33_728)
    no_overrides.initialize()
    assert estimate_optimizer_state(unrelated()).notes == ()
    assert exact(unrelated())[0] == 38_912 - 2048  # maps once, not once a tensor


def test_a_class_of_bitsandbytes_with_another_state_is_not_guessed(bnb):
    class Renamed(bnb.optim.AdamW8bit):
        pass

    class Other(bnb.optim.AdamW8bit):
        def init_state(self, group, p, gindex, pindex):
            self.state[p]["state1"] = torch.zeros(3)

    assert exact(Renamed([parameter(4097)])) == (10378, 8740)
    for odd in (Other([parameter(4097)]), bnb.optim.AdEMAMix32bit([parameter(4097)])):
        with pytest.raises(RuntimeError, match="cannot be predicted"):
            estimate_optimizer_state(odd)


def test_code_maps_are_copied_for_each_change_of_device(bnb):
    # Back to a device with memory is not tried: the library cannot copy a map from meta.
    weights = [parameter(4096), nn.Parameter(torch.empty(5000, device="meta"))]
    adamw = bnb.optim.AdamW8bit(weights)
    predicted = estimate_optimizer_state(adamw)
    assert predicted.by_name["qmap1"].tensors == 2
    for j, p in enumerate(weights):  # lay out the state without the kernels, which need memory
        adamw.init_state(adamw.param_groups[0], p, 0, j)
    assert predicted == measure_optimizer_state(adamw)


class Quantized(torch.Tensor):
    """A tensor that claims float32 and holds codes, scales and a map, as torchao's states do."""

    @staticmethod
    def __new__(cls, codes, scale, qmap, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, codes, scale, qmap, shape):
        self.codes, self.scale, self.qmap = codes, scale, qmap

    def __tensor_flatten__(self):
        return ["codes", "scale", "qmap"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, shape, stride):
        return Quantized(parts["codes"], parts["scale"], parts["qmap"], shape)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class LowBitAdamW(optim.Optimizer):
    """Lays its state out as torchao's AdamW8bit does, for want of torchao."""

    block_size = 256

    def __init__(self, params):
        super().__init__(params, {"amsgrad": False})

    def step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p] = {
                "step": torch.tensor(0.0),
                "exp_avg": self.buffer(p),
                "exp_avg_sq": self.buffer(p),
            }

    def buffer(self, p):
        n = p.numel()
        if n < 4096 or n % self.block_size:
            return torch.zeros_like(p)
        codes = torch.zeros(p.shape, dtype=torch.uint8)
        return Quantized(codes, torch.zeros(n // self.block_size), torch.zeros(256), p.shape)


LowBitAdamW.__module__, LowBitAdamW.__qualname__ = "torchao.optim.adam", "AdamW8bit"


def test_tensor_subclasses_are_looked_into():
    quantized = LowBitAdamW([parameter(64, 64)])
    assert exact(quantized)[0] == 10_372
    assert compute_optimizer_size(quantized.state.values())[0] * MIB == 32_772
    assert exact(LowBitAdamW([parameter(64, 65)]))[0] == 2 * 4 * 4160 + 4


def test_a_tensor_subclass_that_hides_its_memory_is_refused():
    class Opaque(torch.Tensor):
        @staticmethod
        def __new__(cls, shape):
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError(func)

    sgd = optim.SGD([parameter(3)], lr=0.1)
    sgd.state[sgd.param_groups[0]["params"][0]]["hidden"] = Opaque((5, 3))
    with pytest.raises(ValueError, match="cannot see what memory a Opaque"):
        measure_optimizer_state(sgd)


def test_memory_is_counted_by_storage():
    p, other = parameter(5, 3), parameter(7)
    sgd = optim.SGD([p, other], lr=0.1)
    buffer = torch.zeros(100)
    sgd.state[p] = {"part": buffer[:15], "weights": p, "step": 3}
    sgd.state[other] = {"part": buffer[15:22], "own": torch.zeros(7, dtype=torch.float64)}
    measured = measure_optimizer_state(sgd)
    # The whole buffer once; the parameter itself and the Python number add nothing.
    assert {k: (s.tensors, s.elements, s.bytes) for k, s in measured.by_name.items()} == {
        "part": (1, 100, 400),
        "own": (1, 7, 56),
    }


def test_sparse_state_is_measured_and_sparse_gradients_are_not_predicted():
    embedding = nn.Embedding(50, 3, sparse=True)
    sgd = optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    embedding(torch.tensor([1, 4, 7])).sum().backward()
    with pytest.raises(ValueError, match=r"layout torch\.sparse_coo"):
        estimate_optimizer_state(sgd)
    sgd.step()
    assert measure_optimizer_state(sgd).bytes == 3 * 8 + 9 * 4


SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
FACTORIES = {
    "AdamW": optim.AdamW,
    "AdamW fused": lambda p: optim.AdamW(p, fused=True),
    "Adam amsgrad": lambda p: optim.Adam(p, amsgrad=True),
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "RMSprop": lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
    "Adagrad": optim.Adagrad,
}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(FACTORIES)),
    shapes=st.lists(SHAPES, min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, BF16, torch.float16, torch.float64]),
)
def test_prediction_is_measurement_for_any_shapes(name, shapes, dtype):
    exact(FACTORIES[name]([parameter(*s, dtype=dtype) for s in shapes]))


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["torch", "transformers", "beta1", "Muon"]),
    shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    dtype=st.sampled_from([torch.float32, BF16, torch.float64]),
)
def test_prediction_is_measurement_for_factored_shapes(name, shape, dtype):
    from transformers.optimization import Adafactor

    make = {
        "torch": optim.Adafactor,
        "transformers": Adafactor,
        "beta1": lambda p: Adafactor(p, beta1=0.9),
        "Muon": lambda p: optim.Muon(p, ns_steps=1),
    }[name]
    shape = (*shape, 2, 3)[:2] if name == "Muon" else shape
    exact(make([parameter(*shape, dtype=dtype)]))


# Optimizers without a formula, and wrappers


class SignMomentum(optim.Optimizer):
    """An optimizer nobody wrote a formula for: a BF16 moment, and a scalar for each tensor."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.calls = 0

    def step(self):
        self.calls += 1
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                state = self.state[p]
                state.setdefault("moment", torch.zeros_like(p, dtype=BF16)).add_(p.grad)
                state["norm"] = p.grad.norm()
                with torch.no_grad():
                    p.sub_(state["moment"].sign(), alpha=0.1)


def test_an_unknown_optimizer_is_stepped_on_empty_copies_and_left_alone():
    frozen = parameter(11).requires_grad_(False)
    custom = SignMomentum([parameter(5, 3), frozen, parameter(7)])
    before = [p.detach().clone() for p in custom.param_groups[0]["params"]]
    predicted = estimate_optimizer_state(custom)
    assert (predicted.bytes, predicted.elements) == (2 * 22 + 8, 24)
    assert "on meta tensors" in predicted.notes[-1]
    assert custom.calls == 0
    assert not custom.state
    for p, old in zip(custom.param_groups[0]["params"], before, strict=True):
        assert torch.equal(p, old)
        assert p.grad is None
    backward_free = [p for p in custom.param_groups[0]["params"] if p.requires_grad]
    for p in backward_free:
        p.grad = torch.ones_like(p)
    custom.step()
    assert predicted == measure_optimizer_state(custom)


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "Adamax", "Adadelta", "Rprop"])
def test_optimizers_of_torch_without_a_formula(name):
    exact(getattr(optim, name)([parameter(5, 3), parameter(7, dtype=BF16)]))


def test_a_scheduler_and_hooks_do_not_reach_the_copy():
    radam = optim.RAdam([parameter(5, 3)])
    scheduler = optim.lr_scheduler.StepLR(radam, 1)
    calls = []
    radam.register_step_post_hook(lambda *_: calls.append(1))
    predicted = estimate_optimizer_state(radam)
    assert calls == []
    assert not radam.state
    assert predicted == measure_optimizer_state(stepped(radam))
    assert calls == [1]
    scheduler.step()


def test_the_step_agrees_with_the_formulas_where_it_works():
    for make in (
        optim.AdamW,
        lambda p: optim.AdamW(p, amsgrad=True),
        lambda p: optim.AdamW(p, fused=True),  # fails on meta, works on fake tensors
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        optim.RMSprop,
    ):
        optimizer = make([parameter(5, 3, 2), parameter(7, dtype=BF16)])
        assert estimate_by_step(optimizer) == estimate_optimizer_state(optimizer)


def test_where_the_step_needs_memory_the_error_says_so(bnb):
    with pytest.raises(RuntimeError, match="bitsandbytes need real memory"):
        estimate_by_step(bnb.optim.AdamW8bit([parameter(5, 3)]))
    for make in (optim.Adafactor, optim.ASGD, optim.LBFGS):
        with pytest.raises(RuntimeError) as error:
            estimate_by_step(make([parameter(5, 3)]))
        assert "meta tensors:" in str(error.value)
        assert "fake tensors:" in str(error.value)


def test_an_optimizer_inside_another_is_not_overlooked():
    class Outer(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self):
            self.inner.step()

    with pytest.raises(ValueError, match=r"wraps another optimizer in \.inner"):
        estimate_optimizer_state(Outer(optim.AdamW([parameter(5, 3)])))


def test_what_is_no_optimizer_is_refused():
    for function in (estimate_optimizer_state, measure_optimizer_state, estimate_by_step):
        with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer, got Linear"):
            function(nn.Linear(3, 2))


def test_accelerates_wrapper_is_looked_into():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    try:
        wrapped = Accelerator(cpu=True).prepare(optim.AdamW([parameter(5, 3)]))
        assert type(wrapped).__name__ == "AcceleratedOptimizer"
        assert exact(wrapped) == (124, 31)
    finally:
        AcceleratorState._reset_state(True)
        GradientState._reset_state()


def test_sharded_parameters_count_with_this_process_share():
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        model = fully_shard(linears(13, 7, 3), mesh=init_device_mesh("cpu", (4,)))
        for make, expected in ((optim.AdamW, 304), (optim.RMSprop, 160), (optim.Adagrad, 160)):
            optimizer = make(model.parameters())
            predicted = estimate_optimizer_state(optimizer)
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
            optimizer.step()
            assert predicted == measure_optimizer_state(optimizer)
            assert predicted.bytes == expected
            optimizer.zero_grad()
        with pytest.raises(ValueError, match="sharded"):
            estimate_optimizer_state(optim.Adafactor(model.parameters()))
    finally:
        dist.destroy_process_group()


def test_zero_redundancy_is_measured_and_predicted_for_this_process(tmp_path):
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer

    init = (tmp_path / "store").as_uri()
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=init)
    try:
        zero = ZeroRedundancyOptimizer(linears(13, 7, 3).parameters(), optim.AdamW)
        assert exact(zero)[0] == 992
    finally:
        dist.destroy_process_group()


# Trainer's names


def test_trainer_names_and_options():
    model = linears(64, 80, 3)
    n, tensors = 64 * 80 + 80 + 240 + 3, 4
    for name, args, expected in (
        ("adamw_torch", None, 8 * n + 4 * tensors),
        ("sgd", None, 0),
        ("sgd", "momentum=0.9", 4 * n),
        ("rmsprop", None, 4 * n + 4 * tensors),
        ("rmsprop", "momentum = 0.9, centered=True", 12 * n + 4 * tensors),
        ("adagrad", None, 4 * n + 4 * tensors),
        ("lion_32bit", None, 4 * n),
        ("paged_adamw_32bit", None, 8 * n),
        ("adamw_8bit", None, 2 * 5120 + 8 * 20 + 2048 + 8 * 323),
        ("adamw_torch_8bit", None, 2 * 5120 + 8 * 20 + 2048 + 8 * 323 + 4 * tensors),
        ("adamw_torch_4bit", None, 5120 + 8 * 20 + 128 + 8 * 323 + 4 * tensors),
    ):
        assert estimate_trainer_state(model.to("meta"), name, args).bytes == expected, name


def test_trainer_refuses_unknown_names_and_broken_arguments():
    with pytest.raises(ValueError, match=r"no formula for optim='galore_adamw'.*adafactor"):
        estimate_trainer_state(linears(3, 2), "galore_adamw")
    with pytest.raises(ValueError, match="name=value"):
        estimate_trainer_state(linears(3, 2), "sgd", "momentum")
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        estimate_trainer_state([parameter(3)], "sgd")


def test_trainer_gives_state_to_what_receives_a_gradient_and_adagrad_to_all():
    model = PartlyUsed()
    unused = list(model.fc.parameters())
    assert estimate_trainer_state(model, "adamw_torch", unused=unused).bytes == 5208
    everything = 4 * (650 + 40_970) + 4 * 4
    assert estimate_trainer_state(model, "adagrad", unused=unused).bytes == everything
