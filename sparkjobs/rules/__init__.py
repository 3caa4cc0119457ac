"""The rules: one module for each question, from silver to the tables of `sparkjobs.tables.gold`.

A rule is written once, in plain Python, over the events of one group (a partition, a topic, a cluster). Two drivers
apply the rules: `local` in this process, and `spark` on a cluster. Spark selects the lines, groups them and counts
them; the rules walk through each group. All questions rest on `facts` and `partitions`.
"""
