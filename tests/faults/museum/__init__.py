"""The museum of bugs: what went wrong in Kafka's controllers, and what others found in ours, each with a mutant.

An exhibit is one patch file. Its first lines say which entry it is, what went wrong in Kafka (`kafka:`) or in Klamm as
it was once (`once:`), how we hold, and which test plays it; the patch makes the mutant that has to fail this test.
`mutant:` in place of a patch names one of `tests/faults/mutants`. Scenes in the simulator are in `test_scenes.py` and
`test_terms.py`; where a test elsewhere plays the very bug, the exhibit names that one.
"""
