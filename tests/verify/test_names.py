"""Tensors of a script that wraps its model are found in one that does not."""

from paceline.verify.names import renaming


def test_wrapped_and_unwrapped_models_have_the_same_tensors() -> None:
    """DDP's model has no name of its own, an unwrapped one is called after its class."""
    wrapped = ["parameter:fc.weight", "buffer:norm.mean", "gradient:fc.weight", "optimizer:0/fc.weight:exp_avg"]
    plain = [
        "parameter:Net/fc.weight",
        "buffer:Net/norm.mean",
        "gradient:Net/fc.weight",
        "optimizer:0/Net/fc.weight:exp_avg",
    ]

    assert renaming(plain, wrapped) == dict(zip(plain, wrapped, strict=True))
    assert renaming(wrapped, plain) == dict(zip(wrapped, plain, strict=True))


def test_prefixes_of_wrappers_do_not_count() -> None:
    """torch.compile and DataParallel keep the model under a name of theirs."""
    assert renaming(["parameter:Net/module._orig_mod.fc.weight"], ["parameter:fc.weight"]) == {
        "parameter:Net/module._orig_mod.fc.weight": "parameter:fc.weight"
    }
    assert renaming(["parameter:Net/submodule.weight"], ["parameter:weight"]) == {}


def test_models_are_told_apart_by_their_tensors() -> None:
    """The order in which a script makes its models does not matter; that of equal models does."""
    ours = ["parameter:G/up.weight", "parameter:D/down.weight", "parameter:D#1/down.weight"]
    theirs = ["parameter:down.weight", "parameter:1/up.weight", "parameter:2/down.weight"]

    assert renaming(ours, theirs) == {ours[0]: theirs[1], ours[1]: theirs[0], ours[2]: theirs[2]}


def test_a_tensor_that_only_one_script_has_gets_no_name() -> None:
    """The rest of its model is found all the same."""
    ours = ["parameter:Net/fc.weight", "parameter:Net/fc.bias"]

    assert renaming(ours, ["parameter:fc.weight"]) == {ours[0]: "parameter:fc.weight"}
