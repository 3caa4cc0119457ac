------------------------------ MODULE SeatTrace ------------------------------
(***************************************************************************)
(* What really happened, held against Seat.  `Traces` of the module        *)
(* Recorded holds one sequence of steps for each run, in the order of      *)
(* zxids; each step names its action.  A step that ZooKeeper saw stands    *)
(* for the steps of the process before it, too, which nobody saw: a claim  *)
(* for Draw, Claim and Begin.                                              *)
(***************************************************************************)
EXTENDS Seat, Sequences, Recorded

VARIABLES run, at
\* Seat's variables that a trace says nothing of
unseen == <<alive, session, mind, claim, leaving, last, faults>>

ASSUME \A n \in DOMAIN Traces : TLCSet(n, 0)
Start == Init /\ run \in DOMAIN Traces /\ at = 0
\* TLC prints how far it has followed each trace; what it never reaches, no action allows.
Reached == TLCGet(run) < at => TLCSet(run, at) /\ PrintT(<<"at", run, at>>)

TermsOf(o) == {t \in terms : t.owner = o}

SeenClaim(o, e, v, notes) ==
  /\ seat = Nobody
  /\ Has("note at once") => notes
  /\ e > Known                                     \* how far above it is a matter of witnesses that no trace shows
  /\ Has("count by one") => (noted = node.value => e = Known + 1)
  /\ IF Has("fresh version") THEN v % 64 = e % 64 ELSE v = node.version + 1
  /\ seat' = o
  /\ node' = [value |-> e, version |-> v]
  /\ latest' = [owner |-> o, epoch |-> e, step |-> 1]
  /\ noted' = e
  /\ terms' = terms \cup {[owner |-> o, epoch |-> e, fence |-> v]}
  /\ UNCHANGED <<used, obeyed>>

\* A write, with the epoch that it stamps (0: none), and what its transaction checked.
SeenWrite(o, e, checks) ==
  \E t \in TermsOf(o) :
    /\ e \in {0, t.epoch}
    /\ Has("fence") => "epoch" \in checks /\ node.version = t.fence
    /\ Has("seat check") => "seat" \in checks /\ seat = o
    /\ latest.owner = o
    /\ used' = used \cup {t}
    /\ UNCHANGED <<seat, node, latest, noted, terms, obeyed>>

SeenRelease(o, v) ==
  /\ seat = o
  \* not its own epoch any more: it is put right, unless whoever spoiled it has done so
  /\ \E t \in TermsOf(o) : node.version = t.fence \/ v # node.version \/ node.value = t.epoch
  /\ seat' = Nobody
  /\ node' = IF v = node.version THEN node ELSE [value |-> latest.epoch, version |-> v]
  /\ UNCHANGED <<latest, noted, terms, used, obeyed>>

SeenEnd(o) == seat = o /\ seat' = Nobody /\ UNCHANGED <<node, latest, noted, terms, used, obeyed>>

\* A broker, in one of its lives, obeyed.
SeenTell(p, e, b) ==
  \E t \in terms :
    /\ t.epoch = e /\ t.owner[1] = p
    /\ (Has("obey upwards") /\ b \in DOMAIN obeyed) => obeyed[b] <= e
    /\ obeyed' = (b :> e) @@ obeyed
    /\ used' = used \cup {t}
    /\ UNCHANGED <<seat, node, latest, noted, terms>>

SeenDeleteSeat == seat' = Nobody /\ UNCHANGED <<node, latest, noted, terms, used, obeyed>>
SeenEpoch(value, v) == node' = [value |-> value, version |-> v] /\ UNCHANGED <<seat, latest, noted, terms, used, obeyed>>

Happens(s) ==
  CASE s[1] = "Claim" -> SeenClaim(<<s[2], s[3]>>, s[4], s[5], s[6])
    [] s[1] = "Write" -> SeenWrite(<<s[2], s[3]>>, s[4], s[5])
    [] s[1] = "Release" -> SeenRelease(<<s[2], s[3]>>, s[4])
    [] s[1] = "End" -> SeenEnd(<<s[2], s[3]>>)
    [] s[1] = "Tell" -> SeenTell(s[2], s[3], <<s[4], s[5]>>)
    [] s[1] = "DeleteSeat" -> SeenDeleteSeat
    [] s[1] = "Epoch" -> SeenEpoch(s[2], s[3])

Follow ==
  /\ at < Len(Traces[run])
  /\ Happens(Traces[run][at + 1])
  /\ at' = at + 1
  /\ UNCHANGED <<run, unseen>>

Followed == Start /\ [][Follow]_<<vars, run, at>>
==============================================================================
