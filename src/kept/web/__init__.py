"""The pages of `kept view`: what a run did and why, live and after.

Reads run folders through `kept.store` and `kept.report`; writes nothing but the index of runs and
what forms are filled with. A refinement that a page starts is a `kept refine` of its own (0065).
Beside `cli`, which finds it by the entry point `kept.pages` (decision 0059).
"""
