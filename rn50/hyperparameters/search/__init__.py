"""``rn50 search``: a search for hyperparameters that reach the target in fewer epochs.

From the top down: ``search.py`` starts and watches runs, each a ``Training``; ``trial_scheduler.py`` says
which run comes next; ``method.py`` chooses the hyperparameters and ``confirmation.py`` the runs that confirm
the winner; ``journal.py`` keeps what the trials have shown; ``report.py`` writes the outcome.
"""
