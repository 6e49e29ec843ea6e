"""What a step makes of its gradients: optimizers, precision, variants of the network."""

from course.tests.proof.submissions import Wrong, program

_STEP = "        optimizer.step()\n        total += loss.item()\n"
_WRAPPED = "wrapped = DistributedDataParallel(synchronised(model), gradient_as_bucket_view=True)\n"
_SGD = "return torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)\n"

WRONG = [
    Wrong(
        name="clipped-before-the-sum",
        line="A.oracle",
        messages=("unequal",),
        base="own_loop",
        edits=(
            program(
                "            # The sum over the whole batch",
                "            norm = torch.cat([g.flatten() for g in grads]).norm() / max(1, len(y))\n"
                "            grads = [g / max(1.0, norm.item() / 0.5) for g in grads]\n"
                "            # The sum over the whole batch",
            ),
        ),
        fault="F30",
        why="each process clips its own gradient before they are summed",
    ),
    Wrong(
        name="no-zero-grad",
        line="A.oracle",
        messages=("unequal",),
        edits=(program("        optimizer.zero_grad()\n", ""),),
        fault="F27",
        why="gradients of earlier steps are still in those of later ones",
    ),
    Wrong(
        name="zero-grad-after-backward",
        line="A.oracle",
        messages=("nothing-moves",),
        edits=(program(_STEP, "        optimizer.zero_grad()\n" + _STEP),),
        fault="F42",
        why="gradients are cleared before the step",
    ),
    Wrong(
        name="optimizer-of-another-network",
        line="A.oracle",
        messages=("nothing-moves",),
        edits=(
            program(
                "optimizer = make_optimizer(options, model)\n",
                "optimizer = make_optimizer(options, make_model(options.variant, options.seed))\n",
            ),
        ),
        fault="F42",
        why="the optimizer holds weights that nobody uses any more",
    ),
    Wrong(
        name="rate-scaled-silently",
        line="A.oracle",
        messages=("times-world",),
        edits=(
            program(
                '    if options.schedule == "constant":\n        return options.lr\n',
                '    if options.schedule == "constant":\n        return options.lr * dist.get_world_size()\n',
            ),
        ),
        fault="F32",
        why="the rate is multiplied by the number of processes, though nobody said so",
    ),
    Wrong(
        name="weight-decay",
        line="A.oracle",
        messages=("unequal",),
        edits=(program(_SGD, _SGD.replace("options.momentum)", "options.momentum, weight_decay=1e-4)")),),
        fault="F32",
        why="a weight decay that nobody asked for",
    ),
    Wrong(
        name="no-momentum",
        line="A.oracle",
        messages=("no-momentum",),
        edits=(program(_SGD, "return torch.optim.SGD(trained, lr=options.lr)\n"),),
        fault="F32",
        why="the momentum got lost",
    ),
    Wrong(
        name="nesterov",
        line="A.oracle",
        messages=("unequal",),
        edits=(program(_SGD, _SGD.replace("options.momentum)", "options.momentum, nesterov=True)")),),
        fault="F32",
        why="another kind of momentum",
    ),
    Wrong(
        name="schedule-without-being-asked",
        line="A.oracle",
        messages=("unequal",),
        edits=(program('default="constant", help="after the warm-up"', 'default="cosine", help="after the warm-up"'),),
        fault="F33",
        why="the rate falls, though nobody asked for a schedule",
    ),
    Wrong(
        name="schedule-too-fast",
        line="A.oracle",
        messages=("unequal",),
        base="trainer",
        edits=(
            program("            return 1.0\n", "            return 0.5 ** (step * self.processes.world // total)\n"),
        ),
        fault="F33",
        why="a schedule that counts the steps of all processes",
    ),
    Wrong(
        name="gradients-rounded",
        line="A.oracle",
        messages=("unequal",),
        edits=(
            program(
                _WRAPPED,
                _WRAPPED
                + "    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
                "\n    wrapped.register_comm_hook(None, bf16_compress_hook)\n",
            ),
        ),
        fault="F121",
        why="gradients travel with 8 bits of mantissa",
    ),
    Wrong(
        name="float32-in-spite-of-float64",
        line="A.oracle",
        messages=("precision",),
        edits=(program("        torch.set_default_dtype(torch.float64)\n", "        pass\n"),),
        fault="F121",
        why="--float64 is read and forgotten",
    ),
    Wrong(
        name="float32-inside",
        line="A.oracle",
        messages=("precision",),
        base="own_loop",
        edits=(program("[g.flatten() for g in grads]", "[g.flatten().float().to(g.dtype) for g in grads]"),),
        fault="F121",
        why="gradients are rounded to float32 on their way",
    ),
    Wrong(
        name="saved-as-float32",
        line="A.oracle",
        messages=("precision",),
        edits=(
            program(
                'save(network.state_dict(), options.out / f"epoch-{epoch}.pt")',
                "save({name: value.float() for name, value in network.state_dict().items()}, "
                'options.out / f"epoch-{epoch}.pt")',
            ),
        ),
        fault="F121",
        why="weights are rounded when they are saved",
    ),
    Wrong(
        name="frozen-is-trained",
        line="A.oracle",
        messages=("frozen-moved",),
        edits=(
            program(
                "    network = make_model(options.variant, options.seed)\n",
                "    network = make_model(options.variant, options.seed).requires_grad_(True)\n",
            ),
        ),
        fault="F43",
        why="what is frozen is thawed before it is wrapped",
    ),
    Wrong(
        name="frozen-moves-by-averaging",
        line="A.oracle",
        messages=("frozen-moved",),
        base="own_loop",
        edits=(
            program(
                "    params = [p for p in model.parameters() if p.requires_grad]\n",
                "    params = [p.requires_grad_(True) for p in model.parameters()]\n",
            ),
        ),
        fault="F43",
        why="everything that is a weight is trained",
    ),
    Wrong(
        name="tied-cut",
        line="A.oracle",
        messages=("unequal-variant",),
        edits=(
            program(
                "    network = make_model(options.variant, options.seed)\n",
                "    network = make_model(options.variant, options.seed)\n"
                "    network.third.weight = nn.Parameter(network.third.weight.detach().clone())\n",
            ),
        ),
        fault="F43",
        why="weights that belong to two layers are two weights from now on",
    ),
    Wrong(
        name="tied-twice",
        line="A.oracle",
        messages=("unequal-variant",),
        base="own_loop",
        edits=(
            program(
                "    params = [p for p in model.parameters() if p.requires_grad]\n",
                "    params = [p for _, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]\n",
            ),
        ),
        fault="F43",
        why="weights that belong to two layers are stepped twice",
    ),
    Wrong(
        name="first-weights-of-another-seed",
        line="A.oracle",
        messages=("other-start",),
        edits=(
            program(
                "    network = make_model(options.variant, options.seed)\n",
                "    network = make_model(options.variant, options.seed + 1)\n",
            ),
        ),
        fault="F65",
        why="the training begins elsewhere",
    ),
    Wrong(
        name="local-batch-norm",
        line="A.oracle",
        messages=("local-norm",),
        edits=(
            program(
                _WRAPPED,
                "for norm in model.modules():\n"
                "        if isinstance(norm, nn.BatchNorm1d):  # one that can live with no sample at all\n"
                "            norm.forward = lambda x, own=norm: type(own).forward(own, x) if len(x) else x\n"
                "    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True,"
                " find_unused_parameters=True)\n",
            ),
        ),
        fault="F56",
        why="each process normalises by its own samples",
    ),
    Wrong(
        name="batch-norm-of-nothing",
        line="A.oracle",
        messages=("local-norm",),
        edits=(program("DistributedDataParallel(synchronised(model), ", "DistributedDataParallel(model, "),),
        fault="F56",
        why="torch's own batch norm is local, also where a process has no sample",
    ),
    Wrong(
        name="other-momentum-of-statistics",
        line="A.oracle",
        messages=("buffers",),
        edits=(
            program(
                "    wrapped.eval()\n",
                "    for norm in wrapped.modules():\n"
                "        if isinstance(norm, nn.BatchNorm1d):\n"
                "            norm.momentum = 0.2\n"
                "    wrapped.eval()\n",
            ),
        ),
        fault="F59",
        why="running statistics follow with another momentum",
    ),
    Wrong(
        name="evaluated-in-train-mode",
        line="A.oracle",
        messages=("buffers",),
        edits=(program("    network.eval()\n    right = counted = 0\n", "    right = counted = 0\n"),),
        fault="F57",
        why="the evaluation goes into the batch norms' statistics",
    ),
    Wrong(
        name="own-statistics-in-evaluation",
        line="A.numbers",
        messages=("wrong-right",),
        edits=(
            program(
                "    network.eval()\n    right = counted = 0\n",
                "    network.eval()\n"
                "    kept = [(norm, norm.running_mean, norm.running_var) for norm in network.modules()"
                " if isinstance(norm, nn.BatchNorm1d)]\n"
                "    for norm, mean, variance in kept:\n"
                "        norm.running_mean, norm.running_var = mean + 0.1, variance * 1.5\n"
                "    right = counted = 0\n",
            ),
            program(
                "    return right, counted\n",
                "    for norm, mean, variance in kept:\n"
                "        norm.running_mean, norm.running_var = mean, variance\n"
                "    return right, counted\n",
            ),
        ),
        fault="F57",
        why="it evaluates with other statistics than it saves",
    ),
    Wrong(
        name="warm-up-on-rank-0-only",
        line="A.runs",
        messages=("mismatch",),
        edits=(
            program(
                "    wrapped(torch.zeros(1, 1, LENGTH)).sum().backward()\n    wrapped.zero_grad()\n",
                "    if dist.get_rank() == 0:\n"
                "        wrapped(torch.zeros(1, 1, LENGTH)).sum().backward()\n    wrapped.zero_grad()\n",
            ),
        ),
        patience=0.35,
        fault="F60",
        why="rank 0 makes a backward that the others do not make",
    ),
]
