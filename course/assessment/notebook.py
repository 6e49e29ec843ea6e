# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The assessment
#
# You get a training that runs on one device, and take it to many. You choose how to train with a large batch, measure,
# read your own measurements, and have all of it judged. This notebook leads through it. It has no exercises: you write
# in three files, `train.py`, `config.toml` and `answers.toml`, in JupyterLab's editor or in your own. Plan some
# ninety minutes. You may use the labs, your notes and every book there is.
#
# ## What a mark can show
#
# Workshops like this one often end with a network that has to reach an accuracy on several GPUs, in a given number of
# epochs or within a given time. The processes of such a training may never have talked to each other, and it passes
# all the same: each trains its own network on its own part of the data, and with enough data each part is enough.
# **Accuracy does not show that gradients were synchronised.** Neither does speed; not synchronising is faster.
#
# So here correctness is judged by itself, and first. The same training is computed once by one process, in float64, and
# the weights that yours saves have to be those, to nine digits, for sizes, seeds and numbers of processes that are
# drawn after you handed in. Two ways of training that differ in one sample differ in the weights. Accuracy is
# judged, too, but as what it is: a question of how well you chose.
#
# ## Where we are
#
# The cells below work in the folder of the assessment. Where there is none beside this notebook, it is made.

# %%
from paceline_course.checking import load_module
from paceline_course.content import course_folder

show = load_module(course_folder() / "assessment" / "show.py", "paceline_assessment_show")
show.enter()

# %% [markdown]
# ## The task
#
# Read it slowly, once, before you write anything. Most of what is judged stands in one half-sentence.

# %%
show.text("TASK.md")

# %% [markdown]
# These are the lines of the rubric. A line of the **gate** has to hold, however many points you have.

# %%
show.rubric()

# %% [markdown]
# ## What one device does
#
# Run it. `one-device` is a configuration of `config.toml`; its log goes into `runs/one-device/log.csv`.

# %%
show.train("one-device")

# %%
show.curves("one-device")

# %% [markdown]
# Read the program as well, all of it: it has some hundred lines, and every one of them is yours from now on. For each
# line that uses data, a loss, a file, a clock or a random number, ask: **what does this line do when there are three of
# us?**
#
# ## Seven properties
#
# The task numbers what has to stay true. To each, one question to ask yourself, and where you met it.
#
# 1. **The same mathematics.** By which number is my gradient divided, on each process, in the last batch of an epoch?
#    And if I have no sample of it? *L4.4, L5.4, L6.2, L6.5, L6.10, L8.6*
# 2. **Every sample once.** Which process reads sample 17 in epoch 3? Could it be two, or none? *L5.3, L5.5, L6.1, L6.4*
# 3. **One state.** If each process printed a digest of its weights after a step, would all lines be the same, from the
#    first step on? *L4.1, L5.4*
# 4. **Numbers of all.** Whose loss is in the log, whose right answers, and who opens the file? *L5.5, L5.6, L6.6*
# 5. **One decision.** Does anybody decide something from a number that only they know, such as a time? *L6.7*
# 6. **Back from a kill.** What would be on the disk if the power failed on this line? What does a training remember
#    besides its weights? *L10.1*
# 7. **A clean end.** Does everyone get to the last line, also when somebody stops early? *L5.6, L6.3, L6.7*
#
# Now write `train.py`. Begin small: make it start with two processes, and end. Then share the data, then the gradients.
# Keep one form for one process and for many; a branch for one process is a second program, of which you test one.
#
# ## The first try with two processes

# %%
show.processes(2, "--epochs", "2", "--samples", "2000", "--out", "tried")

# %% [markdown]
# It came to an end, and the loss falls? That says little, as you know. Ask the grader, up to the line that says most:
# the weights. This takes less than a minute, and you may do it as often as you like. It also works in a terminal, in
# the folder of the assessment.

# %%
# !paceline learn assess --practice --until A.oracle

# %% [markdown]
# ## Read the report
#
# Each line says what was run, what was expected and what came out, and where it can, which mistake gives just that. The
# first one that fails is the one to mend; those behind it often fail for the same reason. The command that was run is
# given in full, so that you can run it yourself.
#
# The page shows the same with what was seen: which process read which samples, what each sent, where one waits.

# %%
show.report()

# %% [markdown]
# A practice draws other sizes, seeds and numbers of processes every time. To see the same one twice, give it a number
# yourself: `--seed 7`. The same number and the same files are the same practice.
#
# When all lines of the gate hold, the hard part is behind you.
#
# ## Choose a large batch
#
# The chosen configuration has a batch of 512 or more on two or more workers, and has to get to the accuracy that one
# device has with batch 64. `large` in `config.toml` does nothing for it yet: it makes an eighth of the steps.
#
# Plan before you train. Write four configurations or more into `config.toml`, **each with one change beside another**:
# two that differ in one key say what this key does, two that differ in five say nothing. What might be changed: more
# epochs, the rate by one of the rules (L8.1), a warm-up and a schedule (L8.2), another optimizer (L8.4, L8.5). Note for
# each what you expect, before you see it.

# %%
show.configurations()

# %%
show.train_all()

# %% [markdown]
# The same curves twice: against the samples that it took, and against the seconds on this machine. When a configuration
# leads on one picture and not on the other, ask what its steps cost. The dashed line, once there was a practice, is
# the target. It has to be **held for two epochs running**; one lucky epoch is none.

# %%
show.curves()

# %% [markdown]
# ## Is it more than luck?
#
# One training is one draw. Question 6 wants two configurations, one of them the chosen one, with three seeds each
# (L8.8). Put their names in the quotes.

# %%
FIRST, SECOND = "", ""
show.train(FIRST, SECOND, seeds=(0, 1, 2))

# %% [markdown]
# ## What a message costs
#
# `measure.py` times messages between two processes, and steps of one. Let nothing else run meanwhile. The points are
# for question 5: a line through them, such that *relative* errors are small (L7.2, L7.3).

# %%
show.measure()
show.messages()

# %% [markdown]
# ## The eight questions
#
# `answers.toml` asks about your own runs. Each question is judged by itself, so an open one costs only its own points.
#
# | | question | read it from | lab |
# |---|---|---|---|
# | 1 | steps and rates | the task and `config.toml` | L8.1 |
# | 2 | when was the target reached | the chosen run's `log.csv` | L2.2 |
# | 3 | which run needed the fewest samples | all of `runs/` | L2.3 |
# | 4 | what a step sends | the network, and the ring | L3.4 |
# | 5 | sixteen workers | `comm.csv`, `compute.csv` | L7.2, L7.3 |
# | 6 | evidence | three seeds of two configurations | L8.8 |
# | 7 | a job that hangs | `hang.txt` | L6, L7.5 |
# | 8 | the change that helped | two configurations that differ in one key | L8 |
#
# Open `answers.toml` and `hang.txt` beside this notebook.

# %%
show.answers()

# %% [markdown]
# ## A practice as a whole
#
# All lines. With a right answer it takes some minutes: each of your configurations is trained again, the chosen one on
# fresh data. It stops at the first line of the gate that does not hold (`--all` goes on). Of a wrong answer it says
# what was expected, and which mistake gives the number that you wrote; of question 7, whose text stays, only that it is
# wrong.

# %%
# !paceline learn assess --practice

# %%
show.report()

# %% [markdown]
# ## The final
#
# The same, with seeds that nobody knows before. Three a day. Make it when a practice has passed with some room: other
# seeds, other data, and the accuracy of a training is a draw.

# %%
READY = False  # True when you are
if READY:
    # !paceline learn assess --final
    show.report()
else:
    print("put True in the place of False, and run this cell, when a practice has passed")

# %% [markdown]
# ## The certificate
#
# A final that passed makes a certificate: a file that anyone can check without a network, and a page to print. It is
# **self-checked**, signed with your own key: it says that this machine ran the grader, and not that nobody changed it.
# When an instructor runs the grader on your folder, it is **attested**. `course/docs/certificate.md` says what each
# of them proves, and what not.

# %%
show.certificate()

# %% [markdown]
# ## After it
#
# - Read our way of doing it beside yours (`show.ours()` says where it is): its comments say why each line is there.
# - Hand in: `paceline learn hand-in` packs the folder, for an instructor who attests.
# - Take a training of your own, and ask the seven questions. `paceline run` starts it as torchrun does, and says which
#   process failed first; labs 9 and 10 go on where this stopped.
