------------------------------- MODULE Records -------------------------------
(***************************************************************************)
(* What becomes of the records of one partition: leaders append, followers *)
(* fetch and truncate, clients rely on what stands below a leader's high   *)
(* watermark.  Of the controller only its decisions are here (`rows`, one  *)
(* after the other as they stood in ZooKeeper); how it comes to them is    *)
(* Partitions' part.  A broker learns of each as late as it likes.         *)
(*                                                                         *)
(* Numbers like S18 are those that the history checker's rules carry.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Brokers,       \* each has a replica; nobody is preferred
  Unclean,       \* TRUE: who is not in sync may lead if nobody else can
  MaxWrites,     \* records
  MaxElections,  \* decisions about the leader
  MaxChanges,    \* ISR changes that leaders ask for
  MaxFaults,     \* deaths of processes and of machines, and questions that come late
  Clauses        \* what a broken specification lacks one of

AllClauses == {
  "whole ISR",        \* a high watermark is where all of the ISR have got to
  "maximal ISR",      \* and all whom the leader has asked for
  "in sync",          \* who is elected cleanly was in the ISR
  "below the mark",   \* nobody relies on what stands above a leader's high watermark
  "begin low",        \* a new leader begins with the high watermark that it knew, not with all that it has
  "member life",      \* who joins the ISR joins it in the very life in which it fetched
  "all it began with",    \* and has all that the leader had when it began to lead
  "same epoch",       \* a leader believes only followers of its own leader epoch
  "truncate",         \* a follower removes what its leader has not, before it takes in anything
  "by epoch",         \* where that begins it learns from leader epochs, not from its own high watermark
  "both epochs",      \* and from the epochs of both logs
  "no further",       \* it removes nothing else
  "say it",           \* it says what it removes
  "noticed first" }   \* a machine that died leads again in another leader epoch only

VARIABLES
  rows,    \* the states that stood: leader, leader epoch, ISR, and whether records may go with it
  up,      \* brokers that run
  life,    \* broker -> which life of it this is
  hurt,    \* members of the ISR whose machine died: they may have less than what they are in sync with
  view,    \* broker -> which of the rows it was told last; none in this life, and nothing before the n-th: -n
  log,     \* broker -> its records, each with the leader epoch in which it was appended
  hw,      \* broker -> its high watermark
  known,   \* leader -> follower -> where its log ends, by what it asked, and in which life
  wish,    \* leader -> the ISR that it asks for, and the lives of who joins
  late,    \* follower -> a question of it that is still under way
  relied,  \* what clients rely on: record, place, and the leader epoch of who let them
  said,    \* what brokers said that they have truncated
  counts

standing == <<rows, up, life, hurt>>
brokers == <<view, log, hw, known, wish>>
vars == <<standing, brokers, late, relied, said, counts>>

Has(clause) == clause \in Clauses
Alike == Permutations(Brokers)
None == 0
Unheard == [end |-> -1, life |-> 0]
NoWish == [isr |-> {}, lives |-> <<>>]
NoQuestion == [to |-> None, epoch |-> -1, at |-> -1, last |-> -1, life |-> 0]
Row(leader, epoch, isr, clean) == [leader |-> leader, epoch |-> epoch, isr |-> isr, clean |-> clean]
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : y >= x

Now == rows[Len(rows)]
Told(b) == IF view[b] <= 0 THEN Row(None, -1, {}, TRUE) ELSE rows[view[b]]
Leads(b) == b \in up /\ Told(b).leader = b
Follows(b, l) == b \in up /\ b # l /\ Told(b).leader = l

(*--------------------------------- rules ---------------------------------*)

\* Whether a broker has a record where it stood.
Keeps(l, place, rec) == Len(l) >= place /\ l[place] = rec

\* What was let to clients in a leader epoch may be gone since: a later election could lose records.
Excused(epoch) == \E i \in DOMAIN rows : ~rows[i].clean /\ rows[i].epoch > epoch

\* S18: a leader may let clients rely on what every member of the ISR has, but for those whose machine died.
MayRely(place, rec, epoch, having) == Excused(epoch) \/ \A b \in Now.isr \ hurt : b \in having

\* S19: what it says of that were records that it knew to be committed is gone by an election that could lose them.
MayMourn(rec, epoch) == \E i \in DOMAIN rows : ~rows[i].clean /\ rec.epoch < rows[i].epoch /\ rows[i].epoch <= epoch

(*----------------------------- leader epochs -----------------------------*)

Last(l) == IF l = <<>> THEN -1 ELSE l[Len(l)].epoch

\* As OffsetForLeaderEpoch answers: the highest leader epoch in a log that is not above e, and where it ends.
EndOf(l, e) ==
  LET places == {i \in DOMAIN l : l[i].epoch <= e} IN
  IF places = {} THEN [epoch |-> -1, end |-> 0] ELSE [epoch |-> l[Max(places)].epoch, end |-> Max(places)]

\* Where a follower that has come so far, with a last record of that epoch, parts from a leader's log.
IsTogether(theirs, at, last) ==
  last = -1 \/ LET end == EndOf(theirs, last) IN end.end >= at /\ (Has("both epochs") => end.epoch = last)
Parting(mine, theirs) ==
  LET end == EndOf(theirs, Last(mine)) IN
  Min({end.end} \cup {Len(mine)} \cup IF Has("both epochs") THEN {EndOf(mine, end.epoch).end} ELSE {})

(*------------------------------- the start -------------------------------*)

Init ==
  /\ \E b \in Brokers : rows = <<Row(b, 0, Brokers, TRUE)>>
  /\ up = Brokers /\ life = [b \in Brokers |-> 1] /\ hurt = {}
  /\ view = [b \in Brokers |-> 1]
  /\ log = [b \in Brokers |-> <<>>] /\ hw = [b \in Brokers |-> 0]
  /\ known = [b \in Brokers |-> [c \in Brokers |-> Unheard]]
  /\ wish = [b \in Brokers |-> NoWish]
  /\ late = [b \in Brokers |-> NoQuestion]
  /\ relied = {} /\ said = {}
  /\ counts = [writes |-> 0, elections |-> 0, changes |-> 0, faults |-> 0]

Count(what, most) == counts[what] < most /\ counts' = [counts EXCEPT ![what] = @ + 1]
Fault == Count("faults", MaxFaults)

(*----------------------------- the controller ----------------------------*)

Decide(row) ==
  /\ rows' = Append(rows, row)
  /\ hurt' = (hurt \cap row.isr) \ {row.leader}
  /\ UNCHANGED <<up, life, brokers, late, relied, said>>

\* A clean election, with the ISR as it was or without those that are gone.
Elect(b, isr) ==
  /\ b \in up /\ (Has("in sync") => b \in Now.isr)
  /\ isr \in {Now.isr \cup {b}, (Now.isr \cap up) \cup {b}}
  /\ Count("elections", MaxElections)
  /\ Decide(Row(b, Now.epoch + 1, isr, b \notin hurt))

ElectUnclean(b) ==
  /\ Unclean /\ b \in up /\ Now.isr \cap up = {}
  /\ Count("elections", MaxElections)
  /\ Decide(Row(b, Now.epoch + 1, {b}, FALSE))

Lose ==
  /\ Now.leader # None /\ Now.isr \cap up = {}
  /\ Decide(Row(None, Now.epoch + 1, Now.isr, TRUE)) /\ UNCHANGED counts

\* A leader that knows what stands gets what it asks for.
Grant(l) ==
  /\ wish[l] # NoWish /\ Now.leader = l /\ view[l] = Len(rows)
  /\ \A b \in wish[l].isr \ Now.isr : b \in up /\ (Has("member life") => wish[l].lives[b] = life[b])
  /\ Decide(Row(l, Now.epoch, wish[l].isr, TRUE)) /\ UNCHANGED counts

(*-------------------------------- leaders --------------------------------*)

Waits(l, row, wished) ==
  IF Has("whole ISR") THEN row.isr \cup IF Has("maximal ISR") THEN wished.isr ELSE {} ELSE {}
Raised(l, records, heard, waits, before) ==
  Max({before, Min({Len(records)} \cup {heard[b].end : b \in waits \ {l}})})

\* What clients rely on from now on: everything below a leader's watermark.
Let(records, mark, epoch) ==
  LET most == IF Has("below the mark") THEN mark ELSE Len(records)
      now == {[at |-> i, rec |-> records[i], epoch |-> epoch] : i \in 1..most}
      Same(x, y) == x.at = y.at /\ x.rec = y.rec IN
  relied' = {x \in relied : ~\E y \in now : Same(x, y) /\ x.epoch < y.epoch}
            \cup {y \in now : ~\E x \in relied : Same(x, y) /\ y.epoch <= x.epoch}
Stand(l, records, mark, epoch) == hw' = [hw EXCEPT ![l] = mark] /\ Let(records, mark, epoch)

Produce(l) ==
  /\ Leads(l) /\ Count("writes", MaxWrites)
  /\ LET records == Append(log[l], [epoch |-> Told(l).epoch, id |-> counts.writes + 1]) IN
     /\ log' = [log EXCEPT ![l] = records]
     /\ Stand(l, records, Raised(l, records, known[l], Waits(l, Told(l), wish[l]), hw[l]), Told(l).epoch)
  /\ UNCHANGED <<standing, view, known, wish, late, said>>

Question(f) == [to |-> Told(f).leader, epoch |-> Told(f).epoch, at |-> Len(log[f]), last |-> Last(log[f]), life |-> life[f]]

\* Whether a leader believes what a question says: that its follower has all before that offset.
Believes(l, f, q) ==
  /\ q.to = l /\ Leads(l)
  /\ Has("same epoch") => q.epoch = Told(l).epoch
  /\ q.life >= known[l][f].life
  /\ q.at <= Len(log[l])
  /\ Has("truncate") /\ Has("by epoch") => IsTogether(log[l], q.at, q.last)

Heard(l, f, q) == [known[l] EXCEPT ![f] = [end |-> q.at, life |-> q.life]]
MarkAfter(l, f, q) == Raised(l, log[l], Heard(l, f, q), Waits(l, Told(l), wish[l]), hw[l])

\* A follower asks, its leader answers, it takes in what comes.
Fetch(l, f) ==
  LET q == Question(f)
      mark == MarkAfter(l, f, q)
      records == log[f] \o SubSeq(log[l], Len(log[f]) + 1, Len(log[l])) IN
  /\ Follows(f, l) /\ Told(f).epoch = Told(l).epoch
  /\ Believes(l, f, q)
  /\ <<Heard(l, f, q), hw[f], log[f]>> # <<known[l], mark, records>>
  /\ known' = [known EXCEPT ![l] = Heard(l, f, q)]
  /\ log' = [log EXCEPT ![f] = records]
  /\ hw' = [hw EXCEPT ![l] = mark, ![f] = Max({@, Min({mark, Len(records)})})]
  /\ Let(log[l], mark, Told(l).epoch)
  /\ UNCHANGED <<standing, view, wish, late, said, counts>>

\* Its logs part from the leader's: it removes what the leader has not.
Cut(l, f) ==
  LET to == Max({0, Parting(log[f], log[l]) - IF Has("no further") THEN 0 ELSE 1}) IN
  /\ Has("truncate") /\ Has("by epoch")
  /\ Follows(f, l) /\ Leads(l) /\ Told(f).epoch = Told(l).epoch
  /\ ~IsTogether(log[l], Len(log[f]), Last(log[f]))
  /\ log' = [log EXCEPT ![f] = SubSeq(@, 1, to)]
  /\ hw' = [hw EXCEPT ![f] = Min({@, to})]
  /\ said' = IF ~Has("say it") THEN said ELSE said \cup
       {[by |-> f, at |-> i, rec |-> log[f][i], committed |-> i <= hw[f], epoch |-> Told(f).epoch] : i \in (to + 1)..Len(log[f])}
  /\ UNCHANGED <<standing, view, known, wish, late, relied, counts>>

\* A question stays under way.
Delay(f) ==
  /\ f \in up /\ Told(f).leader \notin {None, f} /\ late[f] = NoQuestion
  /\ Fault
  /\ late' = [late EXCEPT ![f] = Question(f)]
  /\ UNCHANGED <<standing, brokers, relied, said>>

\* It arrives; its answer is of no use any more.
Arrive(l, f) ==
  /\ late[f] # NoQuestion /\ Believes(l, f, late[f])
  /\ known' = [known EXCEPT ![l] = Heard(l, f, late[f])]
  /\ Stand(l, log[l], MarkAfter(l, f, late[f]), Told(l).epoch)
  /\ late' = [late EXCEPT ![f] = NoQuestion]
  /\ UNCHANGED <<standing, view, log, wish, said, counts>>

\* A follower is slow, or it has caught up.
AskWithout(l, f) ==
  /\ Leads(l) /\ wish[l] = NoWish /\ f # l /\ f \in Told(l).isr
  /\ Count("changes", MaxChanges)
  /\ wish' = [wish EXCEPT ![l] = [isr |-> Told(l).isr \ {f}, lives |-> <<>>]]
  /\ UNCHANGED <<standing, view, log, hw, known, late, relied, said>>

\* Where a leader's own epoch begins in its log.
Began(l) == Cardinality({i \in DOMAIN log[l] : log[l][i].epoch < Told(l).epoch})
MustHave(l) == IF Has("all it began with") THEN Max({hw[l], Began(l)}) ELSE hw[l]
AskWith(l, f) ==
  /\ Leads(l) /\ wish[l] = NoWish /\ f # l /\ f \notin Told(l).isr
  /\ known[l][f].end >= MustHave(l)
  /\ Count("changes", MaxChanges)
  /\ wish' = [wish EXCEPT ![l] = [isr |-> Told(l).isr \cup {f}, lives |-> [b \in Brokers |-> known[l][b].life]]]
  /\ UNCHANGED <<standing, view, log, hw, known, late, relied, said>>

(*----------------------------- what is told ------------------------------*)

\* A broker is told of a row, the newest or one before it.
Hear(b, v) ==
  LET row == rows[v]
      leads == row.leader = b
      goesOn == leads /\ Told(b).leader = b /\ Told(b).epoch = row.epoch
      heard == IF goesOn THEN known[b] ELSE [c \in Brokers |-> Unheard]
      kept == IF leads \/ Has("by epoch") \/ ~Has("truncate") THEN log[b] ELSE SubSeq(log[b], 1, hw[b])
      knew == IF goesOn \/ Has("begin low") THEN hw[b] ELSE Len(log[b]) IN
  /\ b \in up /\ v \in DOMAIN rows /\ v >= (IF view[b] > 0 THEN view[b] + 1 ELSE -view[b])
  /\ view' = [view EXCEPT ![b] = v]
  /\ known' = [known EXCEPT ![b] = heard]
  /\ wish' = [wish EXCEPT ![b] = NoWish]
  /\ log' = [log EXCEPT ![b] = kept]
  /\ IF leads THEN Stand(b, kept, Raised(b, kept, heard, Waits(b, row, NoWish), knew), row.epoch)
     ELSE UNCHANGED <<hw, relied>>
  /\ UNCHANGED <<standing, late, said, counts>>

HearSome(b) == \E v \in DOMAIN rows : Hear(b, v)   \* by this name TLC tells how often it was taken

(*------------------------------- the faults ------------------------------*)

Die(b) ==
  /\ b \in up /\ Fault
  /\ up' = up \ {b}
  /\ life' = [life EXCEPT ![b] = @ + 1]
  /\ view' = [view EXCEPT ![b] = 0]
  /\ known' = [known EXCEPT ![b] = [c \in Brokers |-> Unheard]]
  /\ wish' = [wish EXCEPT ![b] = NoWish]
  /\ hw' \in {hw, [hw EXCEPT ![b] = 0]}   \* as it was written down last
  /\ UNCHANGED <<rows, hurt, log, late, relied, said>>

\* It was the machine: what was not synced is gone, perhaps.
LosePower(b, to) ==
  /\ b \notin up /\ to < Len(log[b]) /\ Fault
  /\ log' = [log EXCEPT ![b] = SubSeq(@, 1, to)]
  /\ hw' = [hw EXCEPT ![b] = Min({@, to})]
  /\ hurt' = IF b \in Now.isr THEN hurt \cup {b} ELSE hurt
  /\ UNCHANGED <<rows, up, life, view, known, wish, late, relied, said>>

Restart(b) ==
  /\ b \notin up
  /\ Has("noticed first") /\ b \in hurt => Now.leader # b
  /\ up' = up \cup {b}
  /\ view' = [view EXCEPT ![b] = -Len(rows)]
  /\ UNCHANGED <<rows, life, hurt, log, hw, known, wish, late, relied, said, counts>>

Next ==
  \/ \E b \in Brokers : ElectUnclean(b) \/ Grant(b) \/ Produce(b) \/ Delay(b) \/ Die(b) \/ Restart(b)
  \/ \E b \in Brokers : \E isr \in SUBSET Brokers : Elect(b, isr)
  \/ Lose
  \/ \E b \in Brokers : HearSome(b)
  \/ \E b \in Brokers : \E to \in 0..MaxWrites : LosePower(b, to)
  \/ \E l, f \in Brokers : Fetch(l, f) \/ Cut(l, f) \/ Arrive(l, f) \/ AskWithout(l, f) \/ AskWith(l, f)

\* Whoever has something to do does it in the end.
Fair ==
  \A b \in Brokers :
    /\ WF_vars(Hear(b, Len(rows))) /\ WF_vars(Restart(b))
    /\ \A l \in Brokers : WF_vars(Fetch(l, b)) /\ WF_vars(Cut(l, b))

Spec == Init /\ [][Next]_vars /\ Fair

NobodyDies == up = Brokers   \* where deaths would only be in the way

(*------------------------------ what holds -------------------------------*)

\* S18, S19: what clients rely on the whole ISR has, unless an election lost it.  So whoever is elected cleanly has it.
ReliedIsInSync == \A x \in relied : MayRely(x.at, x.rec, x.epoch, {b \in Brokers : Keeps(log[b], x.at, x.rec)})

\* S18: readers of a place read the same there.
ReadersAgree == \A x, y \in relied : x.at = y.at /\ x.rec # y.rec => Excused(Min({x.epoch, y.epoch}))

\* S19: two logs with records of one leader epoch in one place are the same up to there.
LogsMatch == \A a, b \in Brokers : \A i \in 1..Min({Len(log[a]), Len(log[b])}) :
  log[a][i].epoch = log[b][i].epoch => \A j \in 1..i : log[a][j] = log[b][j]

\* S19: below both high watermarks they are the same, unless an election lost something.
MarksAgree == \A a, b \in Brokers : \A i \in 1..Min({hw[a], hw[b]}) :
  log[a][i] = log[b][i] \/ Excused(Min({log[a][i].epoch, log[b][i].epoch}))

\* S19: who runs says what it removes,
RemovedIsSaid ==
  [][\A b \in up : b \in up' => \A i \in DOMAIN log[b] :
       Keeps(log'[b], i, log[b][i]) \/ \E x \in said' : x.by = b /\ x.at = i /\ x.rec = log[b][i]]_vars

\* and what it says was committed is gone by an election that could lose it.
SaidIsLost == \A x \in said : x.committed => MayMourn(x.rec, x.epoch)

\* In the end everybody has what the leader has, and all of it can be relied on.
IsLed == Now.leader \in up /\ view[Now.leader] = Len(rows)
LogsMeet == []<>(IsLed =>
  /\ \A b \in up : log[b] = log[Now.leader]
  /\ Now.isr \subseteq up => hw[Now.leader] = Len(log[Now.leader]))
===============================================================================
