"""Loops, collectives and ends: who stops when, and who waits for whom."""

from course.tests.proof.submissions import Wrong, program

_SUMS = "loss, right, counted, late = sum_over_processes(loss, right, counted, late)\n"
_LATE = "        out_of_time = late > 0\n"
_LOSS = '            loss = F.cross_entropy(model(x), y, reduction="sum")\n'
_GOOD = "    return all(row[right] >= options.stop_at * row[counted] for row in rows[-2:])\n"
_TRAIN = "    try:\n        train(options, begun)\n    finally:\n        dist.destroy_process_group()"
_BEGAN = "        began = time.monotonic()\n        epoch = len(rows)\n"

WRONG = [
    Wrong(
        name="stops-by-own-accuracy",
        line="A.stop",
        messages=("stop-hang",),
        base="own_loop",
        edits=(
            program(
                "        streak = streak + 1 if o.stop_at is not None and right >= o.stop_at * asked else 0\n",
                "        streak = streak + 1 if o.stop_at is not None and mine_right >= o.stop_at * len(mine) else 0\n",
            ),
            program("        up = o.seconds", "        mine_right = right\n        up = o.seconds"),
            # Of parts that are nearly equal both may be good enough in the same epoch, which is then right by chance.
            program("mine = team.own(range(o.eval_samples))", "mine = range(o.eval_samples * (team.rank == 0))"),
        ),
        patience=0.5,
        fault="F81",
        why="each process stops when its own part of the evaluation says so, and that of rank 1 is empty",
    ),
    Wrong(
        name="stops-by-own-clock",
        line="A.stop",
        messages=("stop-hang",),
        edits=(
            program(
                _SUMS,
                "own = late\n        loss, right, counted, late = sum_over_processes(loss, right, counted, late)\n"
                "        late = own\n",
            ),
        ),
        patience=0.5,
        fault="F85",
        why="each process looks at its own clock and leaves",
    ),
    Wrong(
        name="rank-0s-clock",
        line="A.stop",
        messages=("stop-never-by-time",),
        edits=(
            program(
                _SUMS,
                "late = late if dist.get_rank() == 0 else 0\n"
                "        loss, right, counted, late = sum_over_processes(loss, right, counted, late)\n",
            ),
        ),
        fault="F85",
        why="only rank 0's clock counts",
    ),
    Wrong(
        name="all-clocks",
        line="A.stop",
        messages=("stop-never-by-time",),
        edits=(program(_LATE, "        out_of_time = late == dist.get_world_size()\n"),),
        fault="F85",
        why="it goes on until the time of all is up",
    ),
    Wrong(
        name="clock-at-the-begin",
        line="A.stop",
        messages=("stop-late",),
        edits=(
            program("        late = options.seconds is not None and time.monotonic() - begun > options.seconds\n", ""),
            program(
                _BEGAN,
                _BEGAN + "        late = options.seconds is not None and time.monotonic() - begun > options.seconds\n",
            ),
        ),
        fault="F85",
        why="the clock is looked at when an epoch begins, so that it stops one epoch later",
    ),
    Wrong(
        name="time-of-the-epoch",
        line="A.stop",
        messages=("stop-never-by-time",),
        edits=(
            program("time.monotonic() - begun > options.seconds", "time.monotonic() - began > options.seconds * 20"),
        ),
        fault="F85",
        why="the time of one epoch is compared, not that of the training",
    ),
    Wrong(
        name="stops-in-the-middle-of-an-epoch",
        line="A.stop",
        messages=("stop-hang",),
        edits=(
            program(
                "        total += loss.item()\n    return total\n",
                "        total += loss.item()\n"
                "        if time.monotonic() > LIMIT:\n            break\n    return total\n",
            ),
            program(
                "    out_of_time = False\n",
                "    out_of_time = False\n    global LIMIT\n"
                "    LIMIT = math.inf if options.seconds is None else begun + options.seconds\n",
            ),
        ),
        patience=0.5,
        fault="F85",
        why="a process leaves the loop over batches when its time is up",
    ),
    Wrong(
        name="one-good-epoch",
        line="A.stop",
        messages=("stop-early",),
        edits=(
            program("for row in rows[-2:])\n", "for row in rows[-1:])\n"),
            program("len(rows) < 2:", "len(rows) < 1:"),
        ),
        fault="F84",
        why="it stops with the first epoch that is good enough, not the second running",
    ),
    Wrong(
        name="two-good-epochs-not-running",
        line="A.stop",
        messages=("stop-early",),
        edits=(program(_GOOD, "    return sum(row[right] >= options.stop_at * row[counted] for row in rows) >= 2\n"),),
        fault="F84",
        why="two good epochs, with a bad one in between",
    ),
    Wrong(
        name="three-good-epochs",
        line="A.stop",
        messages=("stop-late",),
        edits=(program(_GOOD, _GOOD.replace("rows[-2:])", "rows[-3:]) and len(rows) > 2")),),
        fault="F84",
        why="patience of three instead of two",
    ),
    Wrong(
        name="never-stops-by-accuracy",
        line="A.stop",
        messages=("stop-late",),
        edits=(
            program(
                "while len(rows) < options.epochs and not good_enough(options, rows) and not out_of_time:",
                "while len(rows) < options.epochs and not out_of_time:",
            ),
        ),
        fault="F84",
        why="--stop-at is read and forgotten",
    ),
    Wrong(
        name="stops-by-the-last-batch-of-answers",
        line="A.stop",
        messages=("stop-late",),
        edits=(
            program(
                _GOOD,
                "    return sum(row[right] for row in rows[-2:]) / sum(row[counted] for row in rows[-2:]) "
                "> options.stop_at + 0.3\n",
            ),
        ),
        fault="F84",
        why="the mean of two epochs is compared, with a margin",
    ),
    Wrong(
        name="good-epochs-forgotten-by-some",
        line="A.stop",
        messages=("stop-hang",),
        base="own_loop",
        edits=(program("        streak = streak + 1 if", "        streak = streak + 1 if team.rank == 0 and"),),
        patience=0.5,
        fault="F84",
        why="rank 0 stops, and the others hear nothing of it",
    ),
    Wrong(
        name="barrier-on-rank-0",
        line="A.runs",
        messages=("hang",),
        edits=(
            program(
                "        if dist.get_rank() == 0:  # (4) one process writes\n",
                "        if dist.get_rank() == 0:  # (4) one process writes\n            dist.barrier()\n",
            ),
        ),
        patience=0.35,
        fault="F78",
        why="rank 0 waits in a barrier that nobody else comes to",
    ),
    Wrong(
        name="evaluation-through-the-wrapper-on-rank-0",
        line="A.runs",
        messages=("hang",),
        edits=(
            program(
                "        right, counted = evaluate(network, eval_data)\n",
                "        right, counted = evaluate(network, eval_data)\n"
                "        if dist.get_rank() == 0:\n"
                "            right, counted = (int(number) for number in sum_over_processes(right, counted))\n",
            ),
        ),
        patience=0.35,
        fault="F78",
        why="a sum over all processes that only rank 0 asks for",
    ),
    Wrong(
        name="one-more-sum-on-one-rank",
        line="A.runs",
        messages=("mismatch",),
        edits=(
            program(
                "        total += loss.item()\n",
                "        total += loss.item()\n"
                "        if rank == world - 1 and world > 1:\n"
                "            dist.all_reduce(torch.zeros(3))\n",
            ),
        ),
        patience=0.35,
        fault="F87",
        why="one process issues one collective more, every step",
    ),
    Wrong(
        name="collectives-in-another-order",
        line="A.runs",
        messages=("hang",),
        base="hooks",
        edits=(
            program(
                "        works = [dist.all_reduce(loss_sum, async_op=True), dist.all_reduce(score, async_op=True)]\n",
                "        pair = [loss_sum, score] if rank == 0 else [score, loss_sum]\n"
                "        works = [dist.all_reduce(each, async_op=True) for each in pair]\n",
            ),
        ),
        patience=0.35,
        fault="F80",
        why="two sums meet in another order on rank 0",
    ),
    Wrong(
        name="skips-an-empty-part",
        line="A.oracle",
        # Its next sum meets gradients, which do not fit; where batch norms are drawn, a broadcast, and both wait.
        messages=("mismatch", "hang"),
        edits=(
            program(
                "        signals, labels = data.batch(own.tolist())  #",
                "        if not len(own):\n            continue\n        signals, labels = data.batch(own.tolist())  #",
            ),
        ),
        # The sizes that are drawn may leave a process without a sample in the runs of these lines already.
        also=("A.runs", "A.ranks"),
        patience=0.35,
        fault="F82",
        why="a process that has no sample leaves the batch out, and the others wait for it",
    ),
    Wrong(
        name="skips-a-bad-loss",
        line="A.runs",
        messages=("mismatch",),
        base="own_loop",
        edits=(
            program(
                _LOSS,
                _LOSS + "            if team.rank == 1 and first == 2 * o.batch and epoch == 1:\n"
                "                continue  # it looked odd\n",
            ),
        ),
        patience=0.35,
        fault="F82",
        why="one process leaves out a batch whose loss it does not like",
    ),
    Wrong(
        name="uneven-loops",
        line="A.runs",
        messages=("mismatch",),
        edits=(
            program(
                "    for indices, lr in zip(batches, rates, strict=True):\n",
                "    count = len(batches) - (rank == world - 1 > 0)\n"
                "    for indices, lr in list(zip(batches, rates, strict=True))[:count]:\n",
            ),
        ),
        patience=0.35,
        fault="F79",
        why="one process has one batch less",
    ),
    Wrong(
        name="raises-on-rank-1",
        line="A.runs",
        messages=("raised",),
        edits=(
            program(
                "        right, counted = evaluate(network, eval_data)\n",
                "        right, counted = evaluate(network, eval_data)\n"
                '        scale = {"0": 1, "2": 1}[str(dist.get_rank())]\n'
                "        right = right * scale\n",
            ),
        ),
        fault="F90",
        why="one process raises, the others get to hear of it",
    ),
    Wrong(
        name="not-alone",
        line="A.runs",
        messages=("not-alone",),
        edits=(
            program(
                '    if "RANK" in os.environ:\n        dist.init_process_group("gloo")\n    else:\n'
                '        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)\n',
                '    print("rank", os.environ["RANK"])\n    dist.init_process_group("gloo")\n',
            ),
        ),
        fault="F108",
        why="without torchrun there is no RANK",
    ),
    Wrong(
        name="not-alone-caught",
        line="A.runs",
        messages=("exit",),
        edits=(
            program(
                '    else:\n        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)\n',
                '    else:\n        raise SystemExit("start it with torchrun")\n',
            ),
        ),
        fault="F108",
        why="it asks to be started in another way",
    ),
    Wrong(
        name="group-left",
        line="A.runs",
        messages=("group-left",),
        edits=(
            program("        dist.destroy_process_group()  # (7) also when something went wrong\n", "        pass\n"),
        ),
        fault="F118",
        why="the process group is not destroyed",
    ),
    Wrong(
        name="exit-code-1",
        line="A.runs",
        messages=("exit",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n',
                'if __name__ == "__main__":\n    main()\n    raise SystemExit(1)\n',
            ),
        ),
        fault="F90",
        why="everything is right, and the exit code says the opposite",
    ),
    Wrong(
        name="os-exit-1",
        line="A.runs",
        messages=("exit",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n', 'if __name__ == "__main__":\n    main()\n    os._exit(1)\n'
            ),
        ),
        fault="F90",
        why="everything is right, and it leaves with os._exit(1)",
    ),
    Wrong(
        name="raises-at-the-end",
        line="A.runs",
        messages=("raised",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n',
                'if __name__ == "__main__":\n    main()\n    print("best:", best)\n',
            ),
        ),
        fault="F90",
        why="a last line that was never tried",
    ),
    Wrong(
        name="hangs-at-the-end",
        line="A.runs",
        messages=("hang",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n',
                'if __name__ == "__main__":\n    main()\n    while int(os.environ.get("RANK", 0)) == 1:\n'
                "        time.sleep(0.1)\n",
            ),
        ),
        patience=0.35,
        fault="F118",
        why="one process never ends",
    ),
    Wrong(
        name="leaves-a-process",
        line="A.runs",
        messages=("process-left",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n',
                'if __name__ == "__main__":\n    main()\n    if os.fork() == 0:\n        os.setsid()\n'
                "        time.sleep(3600)\n",
            ),
        ),
        fault="F111",
        why="a process stays behind that nobody waits for",
    ),
    Wrong(
        name="killed-by-itself",
        line="A.runs",
        messages=("died",),
        edits=(
            program(
                'if __name__ == "__main__":\n    main()\n',
                'if __name__ == "__main__":\n    main()\n    os.kill(os.getpid(), 15)\n',
            ),
        ),
        fault="F90",
        why="it ends itself by a signal",
    ),
    Wrong(
        name="syntax",
        line="A.runs",
        messages=("syntax",),
        edits=(program("    total = 0.0\n    for indices, lr", "    total = 0.0\n    for indices, lr of"),),
        fault="F90",
        why="no Python",
    ),
]
