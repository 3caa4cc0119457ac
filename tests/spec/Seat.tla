-------------------------------- MODULE Seat --------------------------------
(***************************************************************************)
(* Who may decide.  Processes race for one ephemeral znode, /controller;   *)
(* a claim raises the number in /controller_epoch in the same transaction, *)
(* and the version of that znode fences every later write of the term.     *)
(*                                                                         *)
(* A request may be under way for as long as it likes: whatever a term     *)
(* that once began may send can arrive at any time, as long as its session *)
(* lives.  So a process that is frozen, or notices its end too late, needs *)
(* no action of its own: its requests simply arrive.                       *)
(*                                                                         *)
(* Numbers like S3 are those that the history checker's rules carry.       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Processes,   \* who races
  Brokers,     \* who is told, and obeys
  MaxFaults,   \* expiries, lost answers, resignations, deletions by an operator
  Clauses      \* what holds the seat together; a broken specification lacks one

AllClauses == {
  "fence",            \* a write checks the version of /controller_epoch
  "seat check",       \* and that /controller is there
  "one transaction",  \* a claim takes the seat and raises the epoch that it has read, at once or not at all
  "witness",          \* an epoch is above every one that terms have written down elsewhere
  "note at once",     \* the claim itself writes its epoch down there; without it the term does, with its first write
  "write first",      \* a term writes before it tells anybody anything
  "fresh version",    \* a claim leaves /controller_epoch at a version that no earlier term has as its fence
  "ask again",        \* who got no answer to a claim asks whose the seat is
  "own epoch",        \* a term's epoch comes from its own claim, never from a watch
  "release check",    \* who gives the seat back checks that the epoch is still that term's
  "obey upwards",     \* a broker refuses an epoch below one that it has obeyed
  "end with epoch",   \* a term ends when /controller_epoch is not any more what its claim wrote
  "count by one" }    \* an epoch is one above the highest that is known

VARIABLES
  alive,     \* the sessions that ZooKeeper keeps
  session,   \* process -> number of its newest session
  seat,      \* the session that owns /controller
  node,      \* /controller_epoch: its value and version
  mind,      \* process -> what it is about
  claim,     \* process -> what it claims: the epoch, the version that it has read, and the one that it leaves
  terms,     \* every term that ever began: whose, its epoch, and the version that is its fence
  used,      \* those that wrote or told
  leaving,   \* those that have asked for their release
  latest,    \* the newest claim that ZooKeeper took, and how far above what was known its epoch is
  noted,     \* the highest epoch that terms have written down beside the node
  obeyed,    \* broker -> the highest epoch that it has obeyed
  last,      \* of the newest write or release by a controller: what stood as it arrived
  faults

memory == <<session, mind, claim>>
zookeeper == <<alive, seat, node, latest, noted, last>>
vars == <<memory, zookeeper, terms, used, leaving, obeyed, faults>>

Nobody == <<"nobody", 0>>
Alike == Permutations(Processes)
Gone == [value |-> 0, version |-> -1]
NoClaim == [epoch |-> 0, read |-> -2, fence |-> -2]

Has(clause) == clause \in Clauses
Owner(p) == <<p, session[p]>>
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : y >= x
TermOf(p) == [owner |-> Owner(p), epoch |-> claim[p].epoch, fence |-> claim[p].fence]

Init ==
  /\ session = [p \in Processes |-> 1]
  /\ alive = {<<p, 1>> : p \in Processes}
  /\ seat = Nobody
  /\ node = Gone
  /\ mind = [p \in Processes |-> "idle"]
  /\ claim = [p \in Processes |-> NoClaim]
  /\ terms = {} /\ used = {} /\ leaving = {}
  /\ latest = [owner |-> Nobody, epoch |-> 0, step |-> 1]
  /\ noted = 0
  /\ obeyed = [b \in Brokers |-> 0]
  /\ last = [successor |-> FALSE, seat |-> TRUE, stamp |-> TRUE, release |-> TRUE]
  /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1

(*------------------------------- claiming --------------------------------*)

Known == Max({node.value} \cup IF Has("witness") THEN {noted} ELSE {})
Draws == {Known + 1} \cup IF Has("count by one") THEN {} ELSE {Known + 2}

\* A process finds no /controller, and reads the epoch.
Draw(p, e) ==
  /\ mind[p] = "idle" /\ seat = Nobody
  /\ mind' = [mind EXCEPT ![p] = "claiming"]
  /\ claim' = [claim EXCEPT ![p] = [epoch |-> e, read |-> node.version, fence |-> -2]]
  /\ leaving' = {t \in leaving : t.owner # Owner(p)}   \* a session's requests arrive in their order
  /\ UNCHANGED <<session, zookeeper, terms, used, obeyed, faults>>

\* Where the version stands after a claim.  A node that is made anew counts from 0, and meets older fences.
VersionAfter(e) == IF Has("fresh version") THEN e ELSE node.version + 1

\* The transaction arrives: /controller is created, the epoch raised from the version that was read.
Claim(p, v) ==
  /\ mind[p] \in {"claiming", "unsure"} /\ claim[p].fence = -2
  /\ Owner(p) \in alive
  /\ seat = Nobody
  /\ Has("one transaction") => node.version = claim[p].read
  /\ Has("note at once") => noted < claim[p].epoch
  /\ seat' = Owner(p)
  /\ node' = [value |-> claim[p].epoch, version |-> v]
  /\ latest' = [owner |-> Owner(p), epoch |-> claim[p].epoch, step |-> claim[p].epoch - Max({node.value, noted})]
  /\ noted' = IF Has("note at once") THEN claim[p].epoch ELSE noted
  /\ claim' = [claim EXCEPT ![p].fence = v]
  /\ mind' = [mind EXCEPT ![p] = IF @ = "claiming" THEN "won" ELSE @]
  /\ UNCHANGED <<session, alive, last, terms, used, leaving, obeyed, faults>>

\* It arrives and is refused: somebody was faster, or the epoch is another by now.
Refused(p) ==
  /\ mind[p] = "claiming"
  /\ Owner(p) \in alive
  /\ seat # Nobody \/ node.version # claim[p].read \/ noted >= claim[p].epoch
  /\ mind' = [mind EXCEPT ![p] = "idle"]
  /\ claim' = [claim EXCEPT ![p] = NoClaim]
  /\ UNCHANGED <<session, zookeeper, terms, used, leaving, obeyed, faults>>

\* No answer comes.  The request was carried out, or may yet be, or never.
LoseAnswer(p) ==
  /\ mind[p] \in {"claiming", "won"}
  /\ mind' = [mind EXCEPT ![p] = "unsure"]
  /\ Fault
  /\ UNCHANGED <<session, claim, zookeeper, terms, used, leaving, obeyed>>

BeginAs(p, term) ==
  /\ mind' = [mind EXCEPT ![p] = "active"]
  /\ claim' = [claim EXCEPT ![p].fence = term.fence]
  /\ terms' = terms \cup {term}
  /\ UNCHANGED <<session, zookeeper, used, leaving, obeyed, faults>>

\* The good answer comes: a term begins, if no higher epoch is written down.
Begin(p) ==
  /\ mind[p] = "won"
  /\ Has("witness") => noted <= claim[p].epoch
  /\ BeginAs(p, TermOf(p))

\* After a lost answer: it is ours if ZooKeeper says so.  A request of before that reading cannot arrive after it.
FindWon(p) ==
  /\ mind[p] = "unsure"
  /\ IF Has("ask again")
       THEN seat = Owner(p) /\ node = [value |-> claim[p].epoch, version |-> claim[p].fence]
       ELSE TRUE
  /\ Has("witness") => noted <= claim[p].epoch
  /\ BeginAs(p, [TermOf(p) EXCEPT !.fence = VersionAfter(claim[p].epoch)])

FindLost(p) ==
  /\ mind[p] = "unsure" /\ Has("ask again")
  /\ seat # Owner(p)
  /\ mind' = [mind EXCEPT ![p] = "idle"]
  /\ claim' = [claim EXCEPT ![p] = NoClaim]
  /\ UNCHANGED <<session, zookeeper, terms, used, leaving, obeyed, faults>>

(*------------------------------- the term --------------------------------*)

\* A decision arrives at ZooKeeper and is taken.  What fails the checks is nothing, and needs no action.
Write(t) ==
  /\ t \in terms
  /\ t.owner \in alive
  /\ Has("fence") => node.version = t.fence
  /\ Has("seat check") => seat # Nobody
  /\ last' = [last EXCEPT !.successor = latest.owner # t.owner, !.seat = seat = t.owner, !.stamp = t.epoch >= noted]
  /\ noted' = t.epoch
  /\ used' = used \cup {t}
  /\ UNCHANGED <<memory, alive, seat, node, latest, terms, leaving, obeyed, faults>>

\* A request arrives at a broker, which obeys.  It knows of no fence but the epoch.
Tell(t, b) ==
  /\ t \in (IF Has("write first") THEN used ELSE terms)
  /\ Has("obey upwards") => t.epoch >= obeyed[b]
  /\ obeyed' = [obeyed EXCEPT ![b] = t.epoch]
  /\ used' = used \cup {t}
  /\ UNCHANGED <<memory, zookeeper, terms, leaving, faults>>

\* What must not be: a watch tells a process the newest epoch, and it goes on under that name.
Relabel(p) ==
  /\ ~Has("own epoch")
  /\ mind[p] = "active" /\ node # Gone /\ claim[p].epoch # node.value
  /\ terms' = terms \cup {[owner |-> Owner(p), epoch |-> node.value, fence |-> node.version]}
  /\ UNCHANGED <<memory, zookeeper, used, leaving, obeyed, faults>>

(*---------------------------- the term's end -----------------------------*)

Idle(p) ==
  /\ mind' = [mind EXCEPT ![p] = "idle"]
  /\ claim' = [claim EXCEPT ![p] = NoClaim]

\* A process sees that the seat is not its own.
SeeDeposed(p) ==
  /\ mind[p] \in {"active", "won"} /\ Owner(p) \in alive /\ seat # Owner(p)
  /\ Idle(p)
  /\ UNCHANGED <<session, zookeeper, terms, used, leaving, obeyed, faults>>

\* It sees that its epoch is not in the node any more, though the seat is its own.
SeeEpochGone(p) ==
  /\ Has("end with epoch")
  /\ mind[p] = "active" /\ seat = Owner(p) /\ node.version # claim[p].fence
  /\ leaving' = leaving \cup {TermOf(p)}
  /\ Idle(p)
  /\ UNCHANGED <<session, zookeeper, terms, used, obeyed, faults>>

\* It is asked to hand the seat back, or meets a bug.
Resign(p) ==
  /\ mind[p] = "active"
  /\ leaving' = leaving \cup {TermOf(p)}
  /\ Idle(p)
  /\ Fault
  /\ UNCHANGED <<session, zookeeper, terms, used, obeyed>>

\* The seat is given back: /controller is deleted, under a check of the epoch.
Release(t) ==
  /\ t \in leaving
  /\ t.owner \in alive
  /\ seat # Nobody
  /\ Has("release check") => node.version = t.fence
  /\ last' = [last EXCEPT !.release = seat = t.owner]
  /\ seat' = Nobody
  /\ leaving' = leaving \ {t}
  /\ UNCHANGED <<memory, alive, node, latest, noted, terms, used, obeyed, faults>>

\* The same where the epoch is not the term's any more: it is put right as the seat is given back.
Mend(t, v) ==
  /\ t \in leaving
  /\ t.owner \in alive
  /\ seat = t.owner /\ node.version # t.fence
  /\ last' = [last EXCEPT !.release = seat = t.owner]
  /\ seat' = Nobody
  /\ node' = [value |-> t.epoch, version |-> v]
  /\ leaving' = leaving \ {t}
  /\ UNCHANGED <<memory, alive, latest, noted, terms, used, obeyed, faults>>

End(s) ==
  /\ alive' = alive \ {s}
  /\ seat' = IF seat = s THEN Nobody ELSE seat

\* A process that cannot begin what it has won, or not release what it has, gives up its session.
GiveUp(p) ==
  /\ Owner(p) \in alive /\ seat = Owner(p)
  /\ \/ mind[p] = "won" /\ noted > claim[p].epoch
     \/ mind[p] = "unsure" /\ (noted >= claim[p].epoch \/ node.version # claim[p].fence)
     \/ mind[p] = "idle"
  /\ End(Owner(p))
  /\ Idle(p)
  /\ UNCHANGED <<session, node, latest, noted, last, terms, used, leaving, obeyed, faults>>

\* A process hears that its session is over, and takes another.
Connect(p) ==
  /\ Owner(p) \notin alive
  /\ session' = [session EXCEPT ![p] = @ + 1]
  /\ alive' = alive \cup {<<p, session[p] + 1>>}
  /\ Idle(p)
  /\ UNCHANGED <<seat, node, latest, noted, last, terms, used, leaving, obeyed, faults>>

(*-------------------------------- faults ---------------------------------*)

Expire(p) ==
  /\ Owner(p) \in alive
  /\ End(Owner(p))
  /\ Fault
  /\ UNCHANGED <<memory, node, latest, noted, last, terms, used, leaving, obeyed>>

DeleteSeat ==
  /\ seat # Nobody
  /\ seat' = Nobody
  /\ Fault
  /\ UNCHANGED <<memory, alive, node, latest, noted, last, terms, used, leaving, obeyed>>

DeleteEpoch ==
  /\ node # Gone
  /\ node' = Gone
  /\ Fault
  /\ UNCHANGED <<memory, alive, seat, latest, noted, last, terms, used, leaving, obeyed>>

\* By these names TLC tells how often they were taken.
SomeDraw(p) == \E e \in Draws : Draw(p, e)
SomeWrite == \E t \in terms : Write(t)
SomeTold == \E t \in terms, b \in Brokers : Tell(t, b)
SomeReleased == \E t \in leaving : Release(t)
SomeMended == \E t \in leaving : Mend(t, t.epoch)

Next ==
  \/ \E p \in Processes :
       \/ SomeDraw(p) \/ Claim(p, VersionAfter(claim[p].epoch)) \/ Refused(p) \/ LoseAnswer(p) \/ Begin(p) \/ FindWon(p) \/ FindLost(p)
       \/ Relabel(p) \/ SeeDeposed(p) \/ SeeEpochGone(p) \/ Resign(p) \/ GiveUp(p) \/ Connect(p) \/ Expire(p)
  \/ SomeWrite \/ SomeTold \/ SomeReleased \/ SomeMended
  \/ DeleteSeat \/ DeleteEpoch

\* Nobody is stopped for ever: who has something to do does it in the end.  Faults need not happen.
Fair == \A p \in Processes :
  /\ WF_vars(SomeDraw(p))
  /\ WF_vars(Claim(p, VersionAfter(claim[p].epoch)))
  /\ WF_vars(Refused(p) \/ Begin(p) \/ FindWon(p) \/ FindLost(p))
  /\ WF_vars(SeeDeposed(p) \/ SeeEpochGone(p) \/ Connect(p))
  /\ WF_vars(GiveUp(p))

Spec == Init /\ [][Next]_vars /\ Fair

(*------------------------------ what holds -------------------------------*)

\* S1: an epoch is never drawn lower than, or further than one above, what is known when its claim arrives.
EpochsCountByOne == latest.step <= 1

\* S2: no two sessions write or tell under the same epoch.  The epoch that was used twice.
EpochIsUsedOnce == \A s, t \in used : s.epoch = t.epoch => s.owner = t.owner

\* S3: nothing is written by a term after the claim of its successor.
NothingAfterTheSuccessor == ~last.successor

\* S4: whoever writes holds the seat, at that very moment.
WriterHoldsTheSeat == last.seat

\* S4: nobody gives back what is somebody else's.
OnlyItsOwnerVacates == last.release

\* S9: the epoch that is written down never falls.
StampsNeverFall == last.stamp

\* S6: no broker obeys an epoch below one that it has obeyed.
BrokersObeyUpwards == [][\A b \in Brokers : obeyed'[b] >= obeyed[b]]_vars

\* L1: in the end somebody holds the seat, knows it, and can write.
Rules(p) == mind[p] = "active" /\ seat = Owner(p) /\ Owner(p) \in alive /\ node.version = claim[p].fence
SomebodyRules == <>[](\E p \in Processes : Rules(p))
=============================================================================
