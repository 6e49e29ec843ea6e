"""What goes into a step: losses, and gradients that meet."""

from course.tests.proof.submissions import Wrong, program

_BACKWARD = "(loss * (world / len(indices))).backward()\n"
_FORWARD = 'loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n'
_OWN_FORWARD = 'loss = F.cross_entropy(model(x), y, reduction="sum")\n'
_FLAT = "flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))\n"
_STEP = "        optimizer.step()\n        total += loss.item()\n"
_WRAPPED = "wrapped = DistributedDataParallel(synchronised(model), gradient_as_bucket_view=True)\n"

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
        messages=("ranks-differ-at-the-end",),
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
        messages=("times-pieces",),
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
        messages=("not-finite",),
        base="own_loop",
        edits=(
            program(
                _FLAT,
                _FLAT.replace("g.flatten()", "g.flatten() / len(y) * (len(y) / len(batch))").replace(
                    ".div_(len(batch))", ""
                ),
            ),
        ),
        fault="F83",
        why="each process's mean is weighted by its share, and the mean over no sample is nan, which spreads to all",
    ),
    Wrong(
        name="divided-by-the-own-count",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(program(".div_(len(batch))\n", ".div_(max(1, len(y)) * team.size)\n"),),
        fault="F22",
        why="each process divides the common sum by a count that only it has",
    ),
]
