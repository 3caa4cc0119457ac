"""The museum of bugs: bugs of Kafka's controllers, and bugs that others found in ours, each with a mutant.

An exhibit is one patch file. Its first lines name the entry, the bug in Kafka (`kafka:`) or in an earlier Klamm
(`once:`), how we hold, and the test that plays it; the patch makes the mutant that has to fail this test.
`mutant:` in place of a patch names one of `tests/faults/mutants`. Scenes in the simulator are in `test_scenes.py` and
`test_terms.py`; where a test elsewhere plays the very bug, the exhibit names that one.
"""
