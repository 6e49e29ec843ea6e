"""After a kill: what was saved, and who reads it."""

from course.tests.proof.submissions import Wrong, program

_HELD = 'held = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows}\n'
_READ = "    if options.resume and checkpoint.exists():\n"
_LOADED = 'optimizer_state, rows = held["optimizer"], held["rows"]\n'
_SAVED = "            save(held, checkpoint)\n"

WRONG = [
    Wrong(
        name="resume-ignored",
        line="A.resume",
        messages=("anew",),
        edits=(program(_READ, "    if False:\n"),),
        fault="F99",
        why="--resume is read and forgotten",
    ),
    Wrong(
        name="resume-without-optimizer",
        line="A.resume",
        messages=("resume-differs",),
        edits=(program(_LOADED, 'rows = held["rows"]\n'),),
        fault="F95",
        why="the momentum is lost",
    ),
    Wrong(
        name="resume-without-epoch",
        line="A.resume",
        messages=("anew",),
        edits=(program(_LOADED, 'optimizer_state = held["optimizer"]\n'),),
        fault="F99",
        why="weights and momentum are there, but all epochs are trained again",
    ),
    Wrong(
        name="resume-on-rank-0",
        line="A.resume",
        messages=("left",),
        edits=(program(_READ, "    if options.resume and checkpoint.exists() and dist.get_rank() == 0:\n"),),
        patience=0.5,
        fault="F95",
        why="only rank 0 reads the checkpoint, so that the others have other epochs to do",
    ),
    Wrong(
        name="momentum-on-rank-0",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program(
                "    if optimizer_state is not None:\n",
                "    if optimizer_state is not None and dist.get_rank() == 0:\n",
            ),
        ),
        fault="F95",
        why="only rank 0 gets its momentum back",
    ),
    Wrong(
        name="momentum-but-on-rank-0",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program(
                "    if optimizer_state is not None:\n",
                "    if optimizer_state is not None and dist.get_rank() != 1:\n",
            ),
        ),
        fault="F95",
        why="rank 1 has to do without its momentum, and rank 0, whose weights are saved, does not notice",
    ),
    Wrong(
        name="resume-with-first-order",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program("    out_of_time = False\n", "    out_of_time = False\n    done = len(rows)\n"),
            program(
                "batches = order(len(train_data), options.seed, epoch)",
                "batches = order(len(train_data), options.seed, epoch - done)",
            ),
        ),
        fault="F99",
        why="the order of epochs begins anew",
    ),
    Wrong(
        name="resume-without-buffers",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program(
                'network.load_state_dict(held["model"])\n', 'network.load_state_dict(held["model"], strict=False)\n'
            ),
            program(_HELD, _HELD.replace("network.state_dict()", "dict(network.named_parameters())")),
        ),
        fault="F95",
        why="parameters are saved, the batch norms' statistics are not",
    ),
    Wrong(
        name="resume-with-prefix",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program(
                'network.load_state_dict(held["model"])\n', 'network.load_state_dict(held["model"], strict=False)\n'
            ),
            program(_HELD, _HELD.replace("network.state_dict()", "model.state_dict()")),
        ),
        fault="F96",
        why="names begin with module., and strict=False loads nothing",
    ),
    Wrong(
        name="resume-with-prefix-strict",
        line="A.resume",
        messages=("not-resumed",),
        edits=(program(_HELD, _HELD.replace("network.state_dict()", "model.state_dict()")),),
        fault="F96",
        why="names begin with module., and loading raises",
    ),
    Wrong(
        name="resume-of-a-pickle",
        line="A.resume",
        messages=("not-resumed",),
        edits=(program(_HELD, _HELD.replace('"rows": rows', '"rows": rows, "options": options')),),
        fault="F97",
        why="the checkpoint holds an object that weights_only=True refuses",
    ),
    Wrong(
        name="resume-after-loading-behind-the-wrapper",
        line="A.resume",
        messages=("resume-differs",),
        edits=(
            program('        network.load_state_dict(held["model"])\n', ""),
            program(
                "    optimizer = make_optimizer(options, model)\n",
                "    optimizer = make_optimizer(options, model)\n"
                "    if optimizer_state is not None and dist.get_rank() == 0:\n"
                '        network.load_state_dict(held["model"])\n',
            ),
        ),
        fault="F95",
        why="rank 0 reads the weights when the wrapper has sent them already",
    ),
    Wrong(
        name="checkpoint-every-step",
        line="A.resume",
        messages=("resume-differs",),
        base="own_loop",
        edits=(
            program(
                "            step += 1\n",
                "            step += 1\n"
                "            if team.rank == 0:\n"
                "                o.out.mkdir(parents=True, exist_ok=True)\n"
                '                halfway = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}\n'
                '                halfway |= {"rows": rows, "streak": streak, "step": step}\n'
                "                atomically(checkpoint, lambda path, halfway=halfway: torch.save(halfway, path))\n",
            ),
        ),
        fault="F99",
        why="weights from the middle of an epoch, which is then trained from its beginning",
    ),
    Wrong(
        name="epoch-done-before-it-is",
        line="A.resume",
        messages=("epoch-skipped",),
        edits=(
            program(
                "        loss = train_epoch(model, optimizer, train_data, batches, rates)\n",
                "        if dist.get_rank() == 0:\n"
                "            steps, samples = (epoch + 1) * steps_of_epoch, (epoch + 1) * len(train_data)\n"
                "            early = [*rows, [epoch, samples, steps, options.lr, 0.0, 0, len(eval_data), 0.0]]\n"
                '            held = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}\n'
                '            save(held | {"rows": early}, checkpoint)\n'
                "        loss = train_epoch(model, optimizer, train_data, batches, rates)\n",
            ),
        ),
        fault="F99",
        why="the checkpoint says that an epoch is complete when it begins",
    ),
    Wrong(
        name="log-appended",
        line="A.resume",
        messages=("resume-log",),
        edits=(
            program(
                '    fresh = path.with_suffix(".new")\n    with fresh.open("w", newline="") as file:\n'
                "        csv.writer(file).writerows([COLUMNS, *rows])\n    fresh.replace(path)\n",
                "    new = not path.exists()\n"
                '    with path.open("a", newline="") as file:\n'
                "        csv.writer(file).writerows([COLUMNS, *rows] if new else rows[-1:])\n",
            ),
            program(
                "    out_of_time = False\n",
                "    out_of_time = False\n"
                '    if rows and dist.get_rank() == 0:\n        write_log(options.out / "log.csv", rows)\n',
            ),
        ),
        fault="F101",
        why="a resumed training appends a line that is there already",
    ),
    Wrong(
        name="log-begun-anew",
        line="A.resume",
        messages=("resume-log",),
        base="own_loop",
        edits=(
            program(
                "            done, weights = list(rows), model.state_dict()\n",
                "            done, weights = list(rows)[old:], model.state_dict()\n",
            ),
            program(
                "    per_epoch = -(-o.samples // o.batch)\n",
                "    per_epoch = -(-o.samples // o.batch)\n    old = len(rows)\n",
            ),
        ),
        fault="F101",
        why="a resumed training writes its own lines only",
    ),
    Wrong(
        name="checkpoint-under-another-name",
        line="A.resume",
        messages=("anew",),
        edits=(program(_SAVED, '            save(held, options.out / f"checkpoint-{os.getpid()}.pt")\n'),),
        fault="F100",
        why="the checkpoint's name has the number of a process in it",
    ),
    Wrong(
        name="resumes-one-epoch-too-late",
        line="A.resume",
        messages=("epoch-skipped",),
        edits=(program(_LOADED, 'optimizer_state, rows = held["optimizer"], [*held["rows"], held["rows"][-1]]\n'),),
        fault="F99",
        why="the epoch in which it was killed is left out",
    ),
]
