# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L0 · Set-up
#
# This lab has nothing to solve. It shows that everything works on your machine, how the course is used, and what the
# word "device" will mean.
#
# You do not need a GPU. Where there is none, a device is a CPU core, and several processes on one machine play the
# part of several devices: they talk through the same library, hang in the same ways and compute the same numbers.
# What is different is the speed, and where that matters the text says so. The same labs run on eight GPUs as they
# are.

# %%
from paceline_course.notebook import *

show = lab("L0")
show.doctor()

# %% [markdown]
# Every line should begin with `ok`. A `note` works with less, and says with how much; a `no` has to be mended first.
#
# ## How the course works
#
# - **Text and experiments** are cells like the one above.
# - **Exercises** are cells that begin with `%%exercise L1.1`. Running one puts your code into `work/L1_1.py`. That
#   file is what counts: write it here, in an editor, or over ssh.
# - **Checks** run your file in processes of their own, on numbers that are new each time, and say what was run, what
#   was expected and what came out. In a terminal: `paceline learn check L1.1`, or `paceline learn watch L1.1`, which
#   checks whenever you save.
# - **Hints** come in three steps: a question, the idea, nearly the line. The solution with its explanation opens when
#   yours has passed, or after the third hint.
# - **Predictions**: before an experiment you say what you expect. Being wrong is the point; it is how you notice that
#   you have learnt something.
#
# Try a prediction now. Two processes on this machine add up a number each and tell each other the result. Each has to
# be started, and to find the other. How many milliseconds does the sum itself take, once they have found each other?

# %%
# Put your number in the place of the dots.
predict("L0", unit="ms", sum_of_two=...)

# %%
reveal("L0", sum_of_two=show.sum_of_two())

# %% [markdown]
# Light needs a nanosecond for thirty centimetres; this took far longer. Such a fixed cost for each message, however
# short, is called **latency**, and much of this course is about having fewer messages.
#
# ## Tracks
#
# `paceline learn list --track one-day` shows the workshop's own day; `half-day` has its core, `two-days` has all of
# it. `paceline learn status` says how far you are.
#
# `quiz("L0")` asks five questions, to try that out as well.
