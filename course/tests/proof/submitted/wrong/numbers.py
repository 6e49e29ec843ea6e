"""What log.csv says, and who writes it."""

from course.tests.proof.submissions import Wrong, program

_SUMS = "loss, right, counted, late = sum_over_processes(loss, right, counted, late)\n"
_ROW = "rows.append([epoch, samples, steps, rates[-1], loss, int(right), int(counted), seconds])\n"
_PIECES = "torch.arange(len(data)).tensor_split(dist.get_world_size())[dist.get_rank()].split(256)"
_WRITER = "        if dist.get_rank() == 0:  # (4) one process writes\n"
_LOG = '            write_log(options.out / "log.csv", rows)\n'
_WEIGHTS = '            save(network.state_dict(), options.out / f"epoch-{epoch}.pt")\n'

WRONG = [
    Wrong(
        name="padded-evaluation",
        line="A.numbers",
        messages=("padded-evaluation",),
        edits=(
            program(
                _PIECES,
                "torch.cat([torch.arange(len(data)), torch.arange(-len(data) % (2 * dist.get_world_size()))])"
                "[dist.get_rank() :: dist.get_world_size()].split(256)",
            ),
        ),
        fault="F70",
        why="the evaluation samples are filled up, and some are counted twice",
    ),
    Wrong(
        name="short-evaluation",
        line="A.numbers",
        messages=("dropped-evaluation",),
        edits=(
            program(
                "            right += (network(signals).argmax(dim=1) == labels).sum().item()\n",
                "            signals, labels = signals[: len(labels) // 4 * 4], labels[: len(labels) // 4 * 4]\n"
                "            right += (network(signals).argmax(dim=1) == labels).sum().item()\n",
            ),
        ),
        fault="F15",
        why="the last samples of each part are left out",
    ),
    Wrong(
        name="own-part-of-evaluation",
        line="A.numbers",
        messages=("own-part",),
        edits=(program(_SUMS, "loss, _, _, late = sum_over_processes(loss, right, counted, late)\n"),),
        fault="F71",
        why="rank 0 writes down its own part",
    ),
    Wrong(
        name="own-part-sent-to-all",
        line="A.numbers",
        messages=("own-part",),
        edits=(
            program(
                _SUMS,
                "loss, _, _, late = sum_over_processes(loss, right, counted, late)\n"
                "        sent = torch.tensor([right, counted])\n"
                "        dist.broadcast(sent, src=0)\n"
                "        right, counted = sent.tolist()\n",
            ),
        ),
        fault="F71",
        why="rank 0's own part is sent to all",
    ),
    Wrong(
        name="counted-by-each-process",
        line="A.numbers",
        messages=("padded-evaluation",),
        edits=(program(_PIECES, "torch.arange(len(data)).split(256)"),),
        fault="F70",
        why="every process evaluates everything, and the counts are summed",
    ),
    Wrong(
        name="reduced-twice",
        line="A.numbers",
        messages=("padded-evaluation",),
        edits=(program(_SUMS, _SUMS + "        _, right, counted, _ = sum_over_processes(0, right, counted, 0)\n"),),
        fault="F80",
        why="sums are summed once more",
    ),
    Wrong(
        name="rate-instead-of-count",
        line="A.numbers",
        messages=("wrong-right",),
        edits=(program(_ROW, _ROW.replace("int(right)", "right / counted")),),
        fault="F72",
        why="the accuracy stands where the count should be",
    ),
    Wrong(
        name="mean-of-accuracies",
        line="A.numbers",
        messages=("wrong-right",),
        edits=(
            program(
                _SUMS,
                "share = right / counted\n"
                "        loss, share, counted, late = sum_over_processes(loss, share, counted, late)\n"
                "        right = share / dist.get_world_size() * counted\n",
            ),
        ),
        fault="F72",
        why="the mean of the processes' accuracies, cut down to a whole number",
    ),
    Wrong(
        name="evaluated-before-the-epoch",
        line="A.numbers",
        messages=("wrong-right",),
        edits=(
            program(
                "        loss = train_epoch(model, optimizer, train_data, batches, rates)\n"
                "        right, counted = evaluate(network, eval_data)\n",
                "        right, counted = evaluate(network, eval_data)\n"
                "        loss = train_epoch(model, optimizer, train_data, batches, rates)\n",
            ),
        ),
        fault="F71",
        why="the line of an epoch has the accuracy of the one before",
    ),
    Wrong(
        name="saved-after-one-more-step",
        line="A.oracle",
        messages=("unequal",),
        edits=(
            program(
                _WRITER,
                "        optimizer.step()\n" + _WRITER,
            ),
        ),
        fault="F91",
        why="the saved weights have one more step than were asked for",
    ),
    Wrong(
        name="own-loss",
        line="A.numbers",
        messages=("own-loss",),
        edits=(
            program(
                _SUMS,
                "loss = loss / sum(len(indices.tensor_split(dist.get_world_size())[dist.get_rank()])"
                " for indices in batches) * len(train_data)\n"
                "        _, right, counted, late = sum_over_processes(loss, right, counted, late)\n",
            ),
        ),
        fault="F71",
        why="the loss is that of rank 0's samples",
    ),
    Wrong(
        name="mean-of-batch-means",
        line="A.numbers",
        messages=("own-loss",),
        edits=(
            program("        total += loss.item()\n", "        total += loss.item() / max(1, len(own))\n"),
            program("loss, seconds = loss / len(train_data), ", "loss, seconds = loss / len(batches), "),
            program(_SUMS, _SUMS + "        loss = loss / dist.get_world_size()\n"),
        ),
        fault="F72",
        why="the mean of the batches' means, the last of which is smaller",
    ),
    Wrong(
        name="loss-of-the-last-batch",
        line="A.numbers",
        messages=("wrong-loss",),
        edits=(program("        total += loss.item()\n", "        total = loss.item()\n"),),
        fault="F71",
        why="the last batch's loss stands for the epoch's",
    ),
    Wrong(
        name="samples-of-one-process",
        line="A.numbers",
        messages=("wrong-steps",),
        edits=(
            program("(epoch + 1) * len(train_data)\n", "(epoch + 1) * (len(train_data) // dist.get_world_size())\n"),
        ),
        fault="F16",
        why="the samples of one process only",
    ),
    Wrong(
        name="steps-of-all-processes",
        line="A.numbers",
        messages=("wrong-steps",),
        edits=(
            program(
                "steps, samples = (epoch + 1) * steps_of_epoch, ",
                "steps, samples = (epoch + 1) * steps_of_epoch * dist.get_world_size(), ",
            ),
        ),
        fault="F91",
        why="each step is counted once for every process",
    ),
    Wrong(
        name="everybody-writes-the-log",
        line="A.numbers",
        messages=("several-writers",),
        edits=(
            program(_LOG, ""),
            program(
                _WRITER,
                '        write_log(options.out / "log.csv", rows)\n' + _WRITER,
            ),
            program(
                '    fresh = path.with_suffix(".new")\n    with fresh',
                '    fresh = path.with_suffix(f".new{dist.get_rank()}")\n    with fresh',
            ),
        ),
        fault="F101",
        why="every process writes log.csv",
    ),
    Wrong(
        name="everybody-saves",
        line="A.numbers",
        messages=("several-writers",),
        edits=(
            program("        if dist.get_rank() == 0:  # (4) one process writes\n", "        if True:\n"),
            program(
                '    fresh = path.with_suffix(".new")\n    with fresh',
                '    fresh = path.with_suffix(f".new{dist.get_rank()}")\n    with fresh',
            ),
            program(
                '    fresh = path.with_suffix(".new")\n    torch.save',
                '    fresh = path.with_suffix(f".new{dist.get_rank()}")\n    torch.save',
            ),
        ),
        fault="F93",
        why="every process writes every file",
    ),
    Wrong(
        name="log-opened-by-all",
        line="A.numbers",
        messages=("several-writers",),
        edits=(
            program(
                _WRITER,
                '        with (options.out / "log.csv").open("a"):\n            pass\n' + _WRITER,
            ),
        ),
        fault="F101",
        why="every process opens log.csv for writing, one writes",
    ),
    Wrong(
        name="other-columns",
        line="A.numbers",
        messages=("columns",),
        edits=(
            program('"right", "counted", "seconds")', '"correct", "counted", "seconds")'),
            program('COLUMNS.index("right")', 'COLUMNS.index("correct")'),
        ),
        fault="F101",
        why="a column has another name",
    ),
    Wrong(
        name="a-line-for-each-process",
        line="A.numbers",
        messages=("lines",),
        edits=(
            program("        " + _ROW, "        for _ in range(dist.get_world_size()):\n            " + _ROW),
            program("epoch = len(rows)\n", "epoch = len(rows) // dist.get_world_size()\n"),
            program(
                "while len(rows) < options.epochs and", "while len(rows) < options.epochs * dist.get_world_size() and"
            ),
        ),
        fault="F102",
        why="each epoch has as many lines as there are processes",
    ),
    Wrong(
        name="module-prefix",
        line="A.runs",
        messages=("module-prefix",),
        edits=(program(_WEIGHTS, _WEIGHTS.replace("network", "model")),),
        fault="F96",
        why="the wrapper's names are saved",
    ),
    Wrong(
        name="whole-network-pickled",
        line="A.runs",
        messages=("no-weights",),
        edits=(program(_WEIGHTS, _WEIGHTS.replace("network.state_dict()", "network")),),
        fault="F97",
        why="the network is saved as an object, not its weights",
    ),
    Wrong(
        name="weights-inside-of-more",
        line="A.runs",
        messages=("no-weights",),
        edits=(
            program(
                _WEIGHTS, _WEIGHTS.replace("network.state_dict()", '{"model": network.state_dict(), "epoch": epoch}')
            ),
        ),
        fault="F97",
        why="the weights stand one level further down",
    ),
    Wrong(
        name="weights-of-the-last-epoch-only",
        line="A.runs",
        messages=("no-weights",),
        edits=(program(_WEIGHTS, _WEIGHTS.replace('f"epoch-{epoch}.pt"', '"epoch-0.pt"')),),
        fault="F100",
        why="each epoch's weights replace those of the one before",
    ),
    Wrong(
        name="folder-named-by-the-time",
        line="A.runs",
        messages=("no-log",),
        edits=(
            program(
                "    options.out.mkdir(parents=True, exist_ok=True)\n",
                '    options.out = options.out / time.strftime("%H-%M-%S")\n'
                "    options.out.mkdir(parents=True, exist_ok=True)\n",
            ),
        ),
        fault="F100",
        why="results go into a folder that is named by the time",
    ),
    Wrong(
        name="no-log-at-all",
        line="A.runs",
        messages=("no-log",),
        edits=(program(_LOG, ""),),
        fault="F101",
        why="the log was forgotten",
    ),
    Wrong(
        name="lists-of-unequal-length",
        line="A.runs",
        messages=("mismatch",),
        edits=(
            program(
                _SUMS,
                "own = torch.arange(3 + dist.get_rank())\n"
                "        parts = [torch.zeros_like(own) for _ in range(dist.get_world_size())]\n"
                "        dist.all_gather(parts, own)\n"
                "        right = right + 0 * int(sum(part.sum() for part in parts))\n"
                "        " + _SUMS,
            ),
        ),
        patience=0.35,
        fault="F75",
        why="all_gather of parts that are not equally long",
    ),
]
