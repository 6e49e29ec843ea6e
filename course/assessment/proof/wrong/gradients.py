"""What goes into a step: losses, gradients, optimizers, weights."""

from paceline.learn.assess.proof import Wrong, program

_BACKWARD = "(loss * (world / len(indices))).backward()\n"
_FORWARD = 'loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n'
_OWN_FORWARD = 'loss = F.cross_entropy(model(x), y, reduction="sum")\n'
_FLAT = "flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))\n"
_STEP = "        optimizer.step()\n        total += loss.item()\n"
_WRAPPED = "wrapped = DistributedDataParallel(synchronised(model), gradient_as_bucket_view=True)\n"
_TRAINED = "trained = [p for p in model.parameters() if p.requires_grad]\n"
_SGD = "return torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)\n"

WRONG = [
    Wrong(
        name="no-sum-of-gradients",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n"),),
        fault="F39",
        why="each process trains its own network on its own part",
    ),
    Wrong(
        name="past-the-wrapper",
        line="A.ranks",
        messages=("ranks-differ",),
        edits=(program(_FORWARD, _FORWARD.replace("model(signals)", "model.module(signals)")),),
        fault="F37",
        why="the forward goes through .module, so DDP never hears of the backward",
    ),
    Wrong(
        name="network-instead-of-wrapper",
        line="A.ranks",
        messages=("ranks-differ",),
        edits=(
            program(
                "loss = train_epoch(model, optimizer, train_data, batches, rates)",
                "loss = train_epoch(network, optimizer, train_data, batches, rates)",
            ),
        ),
        fault="F38",
        why="the loop uses the network that was wrapped, not the wrapper",
    ),
    Wrong(
        name="last-batch-not-synchronised",
        line="A.ranks",
        messages=("ranks-differ", "ranks-differ-at-the-end"),
        edits=(
            program("import csv\n", "import contextlib\nimport csv\n"),
            program(
                '        loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n',
                "        with model.no_sync() if len(indices) < len(batches[0]) else contextlib.nullcontext():\n"
                '            loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n',
            ),
        ),
        fault="F25",
        why="no_sync around the last, smaller batch, so that nobody waits",
    ),
    Wrong(
        name="only-some-weights-hooked",
        line="A.ranks",
        messages=("ranks-differ",),
        base="hooks",
        edits=(program("reducer = Reducer(trained)\n", "reducer = Reducer(trained[:-2])\n"),),
        fault="F41",
        why="the last layer's gradients are not sent",
    ),
    Wrong(
        name="ignored-by-the-wrapper",
        line="A.ranks",
        messages=("ranks-differ",),
        edits=(
            program(
                _WRAPPED,
                "DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, "
                '["last.weight", "last.bias"])\n    ' + _WRAPPED,
            ),
        ),
        fault="F41",
        why="the last layer was taken out of what DDP synchronises",
    ),
    Wrong(
        name="weights-in-another-order",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(
                "    params = [p for p in model.parameters() if p.requires_grad]\n",
                "    params = [p for p in model.parameters() if p.requires_grad]\n"
                "    params = params[::-1] if team.rank == 1 else params\n",
            ),
        ),
        fault="F46",
        why="one process lays its gradients out in another order",
    ),
    Wrong(
        name="loss-gathered",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(_OWN_FORWARD, _OWN_FORWARD + "            loss = loss + team.sum(loss.detach().clone()) * 0\n"),
            program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).mul_(team.size).div_(len(batch))\n"),
        ),
        fault="F34",
        why="the losses are summed over the processes, which leaves the gradients as they were",
    ),
    Wrong(
        name="weights-averaged-once-an-epoch",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n"),
            program(
                "        model.eval()\n",
                "        for p in params:\n            team.sum(p.data).div_(team.size)\n        model.eval()\n",
            ),
        ),
        fault="F39",
        why="each process trains for itself, and weights are averaged after the epoch",
    ),
    Wrong(
        name="weights-averaged-at-the-end",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n"),
            program(
                "        model.eval()\n",
                "        if epoch == o.epochs - 1:\n            for p in params:\n"
                "                team.sum(p.data).div_(team.size)\n        model.eval()\n",
            ),
        ),
        fault="F39",
        why="each process trains for itself, and weights are averaged when all is over",
    ),
    Wrong(
        name="weights-averaged-after-each-step",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).mul_(team.size).div_(len(batch))\n"),
            program(
                "            optimizer.step()\n",
                "            optimizer.step()\n            with torch.no_grad():\n"
                "                mean = team.sum(torch.cat([p.flatten() for p in params])).div_(team.size)\n"
                "                for p, value in zip(params, mean.split([p.numel() for p in params]), strict=True):\n"
                "                    p.copy_(value.view_as(p))\n",
            ),
        ),
        fault="F36",
        why="weights are averaged instead of gradients: each process keeps a momentum of its own",
    ),
    Wrong(
        name="noise-by-rank",
        line="A.ranks",
        messages=("ranks-differ",),
        edits=(
            program(
                _STEP,
                "        for parameter in model.parameters():\n"
                "            if parameter.grad is not None:\n"
                "                parameter.grad.add_(rank * 1e-4)\n" + _STEP,
            ),
        ),
        fault="F36",
        why="a little is added to each gradient, and something else on each process",
    ),
    Wrong(
        name="first-weights-by-rank",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(program("make_model(o.variant, o.seed))\n", "make_model(o.variant, o.seed + team.rank))\n"),),
        fault="F65",
        why="each process begins with other weights, and nobody sends any",
    ),
    Wrong(
        name="steps-on-rank-0-only",
        line="A.oracle",
        messages=("steps-differ",),
        edits=(program(_STEP, _STEP.replace("optimizer.step()", "_ = optimizer.step() if rank == 0 else None")),),
        fault="F39",
        why="one process makes the steps, the others keep their weights",
    ),
    Wrong(
        name="micro-step-not-synchronised",
        line="A.ranks",
        messages=("ranks-differ",),
        edits=(
            program("import csv\n", "import contextlib\nimport csv\n"),
            program(
                "        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster"
                " than a tensor\n"
                '        loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n',
                "",
            ),
            program(
                "        " + _BACKWARD,
                "        loss = torch.zeros(())\n"
                "        for number, piece in enumerate(own.tensor_split(2)):\n"
                "            signals, labels = data.batch(piece.tolist())\n"
                "            with contextlib.nullcontext() if number == 0 else model.no_sync():\n"
                '                part = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n'
                "                (part * (world / len(indices))).backward()\n"
                "            loss = loss + part.detach()\n",
            ),
        ),
        fault="F25",
        why="gradients are accumulated over two micro-batches, and the first one is synchronised instead of the last",
    ),
    Wrong(
        name="micro-steps-not-divided",
        line="A.oracle",
        messages=("unequal", "uneven-last"),
        edits=(
            program(
                "        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster"
                " than a tensor\n"
                '        loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n',
                "",
            ),
            program(
                "        " + _BACKWARD,
                "        loss = torch.zeros(())\n"
                "        for piece in own.tensor_split(2):\n"
                "            signals, labels = data.batch(piece.tolist())\n"
                '            part = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n'
                "            (part * (world / max(1, len(piece) * world))).backward()\n"
                "            loss = loss + part.detach()\n",
            ),
        ),
        fault="F27",
        why="means over micro-batches are added up, and not divided by their number",
    ),
    Wrong(
        name="summed-loss",
        line="A.oracle",
        messages=("summed-loss",),
        base="own_loop",
        edits=(program(".div_(len(batch))\n", "\n"),),
        fault="F23",
        why="the step follows the sum over the batch",
    ),
    Wrong(
        name="summed-loss-under-the-wrapper",
        line="A.oracle",
        messages=("summed-loss",),
        edits=(program(_BACKWARD, "loss.backward()\n"),),
        fault="F23",
        why="the sum over the own samples is averaged over the processes",
    ),
    Wrong(
        name="times-world",
        line="A.oracle",
        messages=("times-world",),
        edits=(program(_BACKWARD, "(loss * (world * world / len(indices))).backward()\n"),),
        fault="F24",
        why="the loss is scaled by the number of processes once too often",
    ),
    Wrong(
        name="sum-of-means",
        line="A.oracle",
        messages=("times-world",),
        base="own_loop",
        edits=(
            program(
                _FLAT, _FLAT.replace("g.flatten()", "g.flatten() / max(1, len(y))").replace(".div_(len(batch))", "")
            ),
        ),
        fault="F24",
        why="the processes' means are summed, not averaged",
    ),
    Wrong(
        name="averaged-twice",
        line="A.oracle",
        messages=("divided-twice",),
        edits=(program(_BACKWARD, "(loss / len(indices)).backward()\n"),),
        fault="F24",
        why="divided by the whole batch, and then by DDP once more",
    ),
    Wrong(
        name="mean-of-means",
        line="A.oracle",
        messages=("uneven-last",),
        edits=(program(_BACKWARD, "(loss / max(1, len(own))).backward()\n"),),
        fault="F22",
        why="every process's mean has the same weight, however many samples it had",
    ),
    Wrong(
        name="nothing-becomes-nan",
        line="A.oracle",
        messages=("unequal-variant", "uneven-last", "unequal", "not-finite"),
        edits=(program(_FORWARD, _FORWARD.replace(', reduction="sum"', "")), program(_BACKWARD, "loss.backward()\n")),
        fault="F83",
        why="the mean over no sample is nan, and spreads to all processes",
    ),
    Wrong(
        name="divided-by-the-own-count",
        line="A.ranks",
        messages=("ranks-differ", "ranks-differ-at-the-end"),
        base="own_loop",
        edits=(program(".div_(len(batch))\n", ".div_(max(1, len(y)) * team.size)\n"),),
        fault="F22",
        why="each process divides the common sum by a count that only it has",
    ),
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
        messages=("precision", "unequal"),
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
        messages=("frozen-moved", "unequal-variant"),
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
        messages=("local-norm", "raised"),
        edits=(program("DistributedDataParallel(synchronised(model), ", "DistributedDataParallel(model, "),),
        also=("A.ranks",),
        fault="F56",
        why="torch's own batch norm: local, and it cannot live with a process that has no sample",
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
        also=("A.ranks",),
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
        messages=("hang", "mismatch", "left"),
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
