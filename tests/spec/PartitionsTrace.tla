--------------------------- MODULE PartitionsTrace ---------------------------
(***************************************************************************)
(* What really happened to one partition, held against Partitions: each    *)
(* trace is a run as that partition saw it, in the order of zxids.  The    *)
(* rules are those of Partitions; what a controller had read of the        *)
(* brokers is not in a trace, so it may read at any time (`Look`).         *)
(***************************************************************************)
EXTENDS Partitions, Sequences, Recorded

VARIABLES
  run, at,
  wishes,      \* every ISR that a leader asked for
  past,        \* every state that stood
  origin,      \* the assignment without those that a move adds
  confirmed,   \* brokers that have deleted their replica
  stopping,    \* brokers that shut down; of those in `leaves`, others only hand their leaderships over
  unserved     \* brokers that have said in this life that they cannot serve some replica: a log directory failed

disks == <<stopping, unserved>>
seenOnly == <<wishes, past, origin, confirmed, disks>>
unseen == <<marked, ps, rs, view, hosts, wire, wish, synced, counts>>
p0 == 1

ASSUME \A n \in DOMAIN Traces : TLCSet(n, 0)
Start ==
  /\ Init /\ run \in DOMAIN Traces /\ at = 0
  /\ wishes = {} /\ past = {} /\ origin = {} /\ confirmed = {}
  /\ stopping = {} /\ unserved = {}
\* TLC prints how far it has followed each trace; what it never reaches, no action allows.
Reached == TLCGet(run) < at => TLCSet(run, at) /\ PrintT(<<"at", run, at>>)


\* A move begins, ends or gets another target while nobody leads: brokers learn the assignment with the leader epoch, so
\* it rises.  Who leaves the assignment leaves the ISR.
MayStay(old, new) ==
  /\ new = [old EXCEPT !.epoch = @ + 1, !.version = @ + 1, !.isr = @ \cap place[p0].all]
  /\ new.isr # {}
  /\ at > 0 /\ Traces[run][at][1] = "Place"

Stand(kind, new, e, named) ==
  LET old == state[p0] IN
  /\ e = term                                        \* S9: a state carries the epoch of its writer
  /\ named                                           \* S10: the write named the version that it expected
  /\ CASE kind = "Begin" -> old = NoRow /\ place[p0].all # {} /\ MayBegin(p0, new, Living)
       [] kind = "Elect" -> \E D \in SUBSET unserved : MayElect(p0, old, new, Living \ D, leaves)
       [] kind = "Lose" -> \E D \in SUBSET unserved : MayLose(p0, old, new, Living \ D)
       [] kind = "Stay" -> IF OneStep THEN MayStay(old, new) ELSE MayLose(p0, old, new, Living)
       [] kind = "Unclean" -> \E D \in SUBSET unserved : MayElectUnclean(p0, old, new, Living \ D, TRUE)
       [] kind = "Grant" -> \E w \in wishes : MayGrant(p0, old, new, w, Living, [b \in Brokers |-> IF w.lives[b] = None THEN None ELSE seen[b]], stopping)
  /\ state' = [state EXCEPT ![p0] = new]
  /\ past' = past \cup {[row |-> new, term |-> e]}
  /\ UNCHANGED <<reg, place, controller, life, obeyed, wishes, origin, confirmed, disks>>

\* A place: made; on its way to a target, or to another target than before; there; or taken back.
Put(all, target, from) ==
  /\ \/ place[p0].all = {}
     \/ place[p0].all \subseteq all
     \/ all = origin \cup target
     \/ all \subseteq state[p0].isr \/ all = origin
     \/ state[p0] = NoRow
  /\ place' = [place EXCEPT ![p0] = [all |-> all, target |-> target]]
  /\ origin' = from
  /\ UNCHANGED <<reg, state, controller, life, obeyed, wishes, past, confirmed, disks>>

\* S23: every broker has deleted its replica, as far as it is known what they say.  `awaited` is empty where an operator
\* has said that nobody waits for brokers that are gone.
Gone(awaited) ==
  /\ past # {} => (place[p0].all \cap awaited) \subseteq confirmed
  /\ place' = [place EXCEPT ![p0] = NoPlace]
  /\ state' = [state EXCEPT ![p0] = NoRow]
  /\ UNCHANGED <<reg, controller, life, obeyed, seenOnly>>

Happens(s) ==
  CASE s[1] = "State" -> Stand(s[2], Row(s[3], s[4], s[5], s[6], s[7]), s[8], s[9])
    [] s[1] = "Register" ->
         /\ reg' = [reg EXCEPT ![s[2]] = s[3]]
         /\ UNCHANGED <<place, state, controller, life, obeyed, seenOnly>>
    [] s[1] = "Life" ->     \* the broker knows its new registration
         /\ life' = [life EXCEPT ![s[2]] = s[3]]
         /\ UNCHANGED <<zookeeper, controller, obeyed, seenOnly>>
    [] s[1] = "Term" -> term' = s[2] /\ seen' = reg /\ UNCHANGED <<reg, place, state, leaves, ps, rs, life, obeyed, seenOnly>>
    [] s[1] = "Leaving" ->
         /\ leaves' = s[2] /\ stopping' = s[3]
         /\ UNCHANGED <<reg, place, state, term, seen, ps, rs, life, obeyed, wishes, past, origin, confirmed, unserved>>
    [] s[1] = "Unserved" ->
         /\ unserved' = s[2]
         /\ UNCHANGED <<zookeeper, controller, life, obeyed, wishes, past, origin, confirmed, stopping>>
    [] s[1] = "Place" -> Put(s[2], s[3], s[4])
    [] s[1] = "Wish" ->
         /\ wishes' = wishes \cup {[by |-> s[2], epoch |-> s[3], version |-> s[4], isr |-> s[5],
              lives |-> [b \in Brokers |-> IF b \in DOMAIN s[6] THEN s[6][b] ELSE None]]}
         /\ UNCHANGED <<reg, place, state, controller, life, obeyed, past, origin, confirmed, disks>>
    [] s[1] = "Send" ->     \* S29: what leaves stands, or stood
         /\ Has("commit first") => \E x \in past : x.term = s[6] /\ x.row.leader = s[2] /\ x.row.epoch = s[3]
                                              /\ x.row.isr = s[4] /\ x.row.version = s[5]
         /\ UNCHANGED <<zookeeper, controller, life, obeyed, seenOnly>>
    [] s[1] = "Obey" ->     \* S6, S7
         /\ MayObey(s[2], [life |-> s[3], term |-> s[4]])
         /\ obeyed' = [obeyed EXCEPT ![s[2]] = s[4]]
         /\ UNCHANGED <<zookeeper, controller, life, seenOnly>>
    [] s[1] = "Delete" ->   \* S22: who is told to delete is not wanted, or the topic goes
         /\ s[3] \/ s[2] \notin place[p0].all
         /\ confirmed' = confirmed \cup {s[2]}
         /\ UNCHANGED <<zookeeper, controller, life, obeyed, wishes, past, origin, disks>>
    [] s[1] = "Erase" -> Gone(s[2])
    [] s[1] = "Rest" ->     \* L14: everything is led, and everybody knows
         /\ CanBeLed(p0) => Leader(p0) # None /\ reg[Leader(p0)] # None
         /\ \A row \in s[2] : row = <<Leader(p0), state[p0].epoch, state[p0].isr, state[p0].version>>
         /\ UNCHANGED <<zookeeper, controller, life, obeyed, seenOnly>>

Follow ==
  /\ at < Len(Traces[run])
  /\ Happens(Traces[run][at + 1])
  /\ at' = at + 1
  /\ UNCHANGED <<run, unseen>>

\* The controller reads which brokers are there.
Look ==
  /\ seen # reg
  /\ seen' = reg
  /\ UNCHANGED <<zookeeper, term, leaves, ps, rs, brokers, wire, counts, run, at, seenOnly>>

Followed == Start /\ [][Follow \/ Look]_<<vars, run, at, seenOnly>>
==============================================================================
