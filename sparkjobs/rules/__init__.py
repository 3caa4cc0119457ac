"""What happened, question by question: a module each, from silver to the tables of `sparkjobs.tables.gold`.

A rule is said once, in plain Python, over what belongs together (a partition, a topic, a cluster). Two drivers apply
the rules: `local` in this process, `spark` on a cluster, where Spark chooses the lines, brings together what belongs
together and counts, and the rules walk through each group. `facts` and `partitions` hold what all questions rest on.
"""
