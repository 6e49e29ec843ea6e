"""What a submission is told about one kind of mistake: the likely cause, and where to look."""

from __future__ import annotations

from paceline_course.checking import Message

MESSAGES = {
    # any run
    "syntax": Message("Python cannot read the program", "the line above"),
    "raised": Message("the program raised an error", "the line above; what it printed is below"),
    "exit": Message(
        "the program ended with another exit code than 0", "sys.exit, and exceptions that are turned into it"
    ),
    "died": Message("a process ended in the middle", "a signal, os._exit, or memory that ran out"),
    "hang": Message("it did not come to an end", "the card: it says where each process stood. Lab 6"),
    "hung-before": Message(
        "it was not run any more: each further run would take as long", "what the lines before say of the hang"
    ),
    "left": Message(
        "a process waited for another one that had left", "loops that end at different times on different processes"
    ),
    "mismatch": Message(
        "processes met in different collectives", "a collective that not every process calls, or in another order"
    ),
    "memory": Message(
        "it asked for more memory than a submission may have", "a tensor of a wrong shape; a list that grows"
    ),
    "too-much": Message("it wrote or printed more than a submission may", "a print inside a loop; a file that grows"),
    "network": Message(
        "it asked for the network, which a submission does not have", "only the processes of the job talk"
    ),
    # A.runs
    "no-log": Message("log.csv is missing or has no lines", "one process writes it into --out"),
    "no-weights": Message(
        "the weights of an epoch are missing or cannot be read", "epoch-K.pt in --out, by torch.save"
    ),
    "module-prefix": Message(
        "names of the saved weights begin with module.", "the state of the model inside the wrapper"
    ),
    "other-names": Message("the saved weights are not those of the network", "its state_dict, with all names"),
    "group-left": Message(
        "the process group is still there at the end", "dist.destroy_process_group(), as the last act"
    ),
    "process-left": Message(
        "a process of yours goes on when the program has ended",
        "os.fork and subprocess; what is started has to be ended",
    ),
    "not-alone": Message(
        "started as `python train.py` it does not work", "without RANK in the environment it is one process"
    ),
    # A.coverage
    "not-read": Message(
        "training samples were not read when they were needed",
        "data[i] or data.batch([...]) in every epoch, of Signals",
    ),
    "everybody-sees-all": Message("every process goes through all samples", "each takes its part of each batch"),
    "padded": Message(
        "samples were read twice in an epoch",
        "a sampler that fills up, so that all have equally many; what is read before the training",
    ),
    "evaluates-on-training": Message(
        "the evaluation reads training samples, and none of its own",
        "Signals(eval_samples, seed=data_seed + 1_000_000) is what it counts on",
    ),
    "dropped": Message(
        "samples were not read in an epoch", "drop_last; the last, smaller batch; a division that cuts off"
    ),
    "overlap": Message(
        "processes share samples, and miss others", "the order and the parts: the same on all processes"
    ),
    "not-shuffled": Message("samples come in the order of the data", "order(samples, seed, epoch)"),
    "same-order": Message("every epoch has the same order", "the epoch, which order() is given; set_epoch"),
    "other-order": Message(
        "the samples of a step are not those of the task", "order(...)[k * batch : (k + 1) * batch]"
    ),
    "unequal-parts": Message("one process does most of the work", "the part of each process of each batch"),
    # A.ranks
    "ranks-differ": Message(
        "processes no longer hold the same weights",
        "gradients that are not reduced; the first weights; forward past the wrapper",
    ),
    "steps-differ": Message("processes make different numbers of steps", "the batches of each process: equally many"),
    "ranks-differ-at-the-end": Message(
        "processes hold other weights after the last step of an epoch",
        "the last, smaller batch; what is done between epochs, and on which process",
    ),
    # A.oracle
    "nothing-moves": Message(
        "the weights did not change", "zero_grad before backward, and the optimizer's step after it"
    ),
    "other-start": Message("the training did not begin with the weights of the seed", "make_model(variant, seed)"),
    "precision": Message(
        "the weights were not computed in float64",
        "--float64, before the model and the data are made; what is rounded on its way",
    ),
    "not-finite": Message(
        "weights are nan or infinite", "a mean over nothing: a process that has no sample; a division by zero"
    ),
    "times-world": Message(
        "steps are as many times too long as there are processes", "DDP has averaged already; a sum has to be divided"
    ),
    "times-pieces": Message(
        "steps are twice, three or four times too long",
        "pieces of a batch: their means are added, and not divided by how many they are",
    ),
    "divided-twice": Message(
        "steps are too short, as many times as there are processes", "what is divided by their number, and how often"
    ),
    "summed-loss": Message("steps follow the sum over the batch, not its mean", "the reduction of the loss"),
    "batch-per-process": Message(
        "--batch was taken for the batch of one process", "it is that of all processes together"
    ),
    "uneven-last": Message(
        "batches that divide evenly are right, the last, uneven one is not",
        "a mean of the processes' means weighs samples differently: sum, and divide by the whole count",
    ),
    "local-norm": Message(
        "batch norms saw only their own process's samples", "synchronised(model), before the model is wrapped"
    ),
    "frozen-moved": Message(
        "weights that are not trained have changed", "requires_grad, and what is given to the optimizer"
    ),
    "buffers": Message(
        "the weights are right, the batch norms' statistics are not", "momentum, and the count of samples"
    ),
    "no-momentum": Message("the steps are those of SGD without momentum", "--momentum"),
    "unequal": Message(
        "the weights are not those of one process",
        "the loss, the gradients, what is rounded on its way, the rate, the order of steps",
    ),
    "unequal-variant": Message(
        "the weights are right for the plain network, and not for this one",
        "what this variant has that others have not",
    ),
    "unequal-world": Message(
        "the weights are right for another number of processes, and not for this one", "parts that are empty, divisions"
    ),
    # A.numbers
    "columns": Message("log.csv has other columns", "those of the given train.py, in any order, and no line twice"),
    "lines": Message("log.csv does not have a line an epoch", "who writes it, and when; opened by one process"),
    "own-loss": Message(
        "the loss is near that of all processes' samples, but it is not their mean",
        "sums and counts over all processes; a mean of means weighs samples differently",
    ),
    "nan-loss": Message("the loss is nan", "a mean over nothing: a process that has no sample"),
    "wrong-loss": Message(
        "the loss is not the mean over the epoch's samples", "loss times samples, summed, divided once"
    ),
    "own-part": Message("evaluation counts one process's part only", "a sum over processes, of both numbers"),
    "padded-evaluation": Message("evaluation samples are counted twice", "a sampler that fills up"),
    "dropped-evaluation": Message(
        "evaluation samples are not counted", "the last batch, and the last samples of the parts"
    ),
    "wrong-right": Message(
        "right is not what the saved weights give",
        "eval mode; sums, no means; the weights of that epoch, before the next step",
    ),
    "wrong-steps": Message("samples or steps of an epoch are miscounted", "samples are those of all processes"),
    "several-writers": Message("several processes write the same file", "a condition on the global rank"),
    # A.stop
    "stop-own": Message(
        "processes stop with different epochs", "one decision, made on numbers that are equal everywhere"
    ),
    "stop-hang": Message(
        "it hangs where it should stop",
        "a process that leaves the loop alone: the decision has to be a collective's result",
    ),
    "stop-late": Message("it goes on where it should have stopped", "which condition, and when it is looked at"),
    "stop-early": Message("it stops where it should have gone on", "two epochs running; any process, and only then"),
    "stop-never-by-time": Message(
        "the clock of one process had run out, and nobody stopped",
        "any process may ask for the end: a maximum, not rank 0's wish",
    ),
    # A.resume
    "not-resumed": Message("it could not go on after a kill", "what the checkpoint holds, and who reads it"),
    "anew": Message("it began anew", "--resume: the epochs that are complete are not trained again"),
    "epoch-skipped": Message(
        "an epoch was left out after the kill",
        "when the checkpoint says that an epoch is complete: not before it is; and with which one it goes on",
    ),
    "resume-differs": Message(
        "after a kill it ends with other weights", "momentum, buffers, the epoch's order: all of it, on every process"
    ),
    "resume-log": Message(
        "log.csv lost or repeated lines", "the lines that the checkpoint knows, and then the new ones"
    ),
    "kill-missed": Message("the training was over before it could be killed", "samples are read when they are needed"),
    # B
    "not-large": Message("the chosen configuration is not one that the task asks for", "batch, workers, epochs"),
    "other-budget": Message(
        "it used more or fewer samples than its epochs have, or other data",
        "every sample once an epoch, one step a batch",
    ),
    "below": Message("the accuracy of one device is not held", "rate, warm-up, schedule, optimizer, length: lab 8"),
    "weights-from-elsewhere": Message(
        "the first epoch is as good as a whole training",
        "training begins with the weights of make_model(variant, seed)",
    ),
    "not-again": Message(
        "the same run gives other weights each time", "random numbers without a seed; what is done in which order"
    ),
    # C
    "many-samples": Message(
        "it takes many samples to the accuracy", "a higher rate, another optimizer, a shorter warm-up"
    ),
    "never": Message("the accuracy was not reached", "part B"),
    "much-traffic": Message(
        "a step sends more than it has to", "one bucket instead of one collective a weight; what is sent twice"
    ),
    "no-traffic": Message("no collective was seen", "gradients that no process hands to the others"),
    "untold": Message("this torch does not tell what is sent, so nobody can judge it", "the gaps of the report"),
    "not-shared": Message(
        "evaluation samples are read by several processes, by none, or mostly by one",
        "each its part; sums over processes",
    ),
    "slow": Message(
        "it is slower than our reference", "readings one by one, copies, .item() each step, collectives that wait"
    ),
}
"""By id."""
