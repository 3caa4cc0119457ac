---------------------------- MODULE RecordsTrace ----------------------------
(***************************************************************************)
(* What brokers really made of the records of one partition, held against  *)
(* Records: each trace is what disks, questions and answers showed, in the *)
(* order in which it happened.  The rules are those of Records.  Whom      *)
(* the controller may elect is for PartitionsTrace to judge.               *)
(*                                                                         *)
(* A log is written as its first p records and those of `s` behind them.   *)
(***************************************************************************)
EXTENDS Records, Recorded

VARIABLES
  run, at,
  led,    \* leader epoch -> who led in it, its log then, and its high watermark
  harm    \* broker -> in which of its lives its machine died last

unseen == <<up, late, relied, said, counts>>
ASSUME \A n \in DOMAIN Traces : TLCSet(n, 0)
Reached == TLCGet(run) < at => TLCSet(run, at) /\ PrintT(<<"at", run, at>>)
Place == <<run, at>>   \* nothing here happens in two ways: by this TLC knows a state

Start ==
  /\ run \in DOMAIN Traces /\ at = 0
  /\ rows = <<Row(None, -1, {}, TRUE)>>   \* before the first that stood
  /\ up = Brokers /\ life = [b \in Brokers |-> 0] /\ hurt = {} /\ harm = [b \in Brokers |-> 0]
  /\ view = [b \in Brokers |-> 0]
  /\ log = [b \in Brokers |-> <<>>] /\ hw = [b \in Brokers |-> 0]
  /\ known = [b \in Brokers |-> [c \in Brokers |-> Unheard]]
  /\ wish = [b \in Brokers |-> NoWish]
  /\ late = [b \in Brokers |-> NoQuestion]
  /\ led = <<>> /\ relied = {} /\ said = {}
  /\ counts = [writes |-> 0, elections |-> 0, changes |-> 0, faults |-> 0]

Written(s) == [i \in DOMAIN s |-> [epoch |-> s[i][1], id |-> s[i][2]]]

\* S18, S19: what leaders let clients rely on the whole ISR has, unless an election lost it.
LetIsInSync == \A e \in DOMAIN led : Excused(e) \/
  \A b \in Now.isr \ hurt : \A i \in 1..led[e].hw : Keeps(log[b], i, led[e].log[i])

\* A leader's log and high watermark become these.  What is let to clients by that the whole ISR has.
Leading(l, records, mark) ==
  LET epoch == Told(l).epoch IN
  /\ log' = [log EXCEPT ![l] = records] /\ hw' = [hw EXCEPT ![l] = mark]
  /\ led' = (epoch :> [by |-> l, log |-> records, hw |-> mark]) @@ led
  /\ \A i \in (hw[l] + 1)..mark :
       MayRely(i, records[i], epoch, {b \in Brokers : Keeps(IF b = l THEN records ELSE log[b], i, records[i])})

Forget(b) ==
  /\ known' = [known EXCEPT ![b] = [c \in Brokers |-> Unheard]]
  /\ wish' = [wish EXCEPT ![b] = NoWish]

\* A state stands.  In the same leader epoch it is what its leader, who knows of the one before, has asked for; who joins
\* by an earlier life may have less than that life had.
Stands(row) ==
  LET asked == wish[row.leader]
      joining == row.isr \ Now.isr
      stale == {b \in joining : row.epoch = Now.epoch /\ asked.lives[b] <= harm[b]} IN
  /\ IF row.epoch = Now.epoch
     THEN row.leader \in Brokers /\ row.leader = Now.leader /\ asked.isr = row.isr /\ view[row.leader] = Len(rows)
     ELSE row.epoch = Now.epoch + 1
  /\ rows' = Append(rows, [row EXCEPT !.clean =
       row.leader = None \/ Len(rows) = 1 \/ (row.leader \in Now.isr /\ row.leader \notin hurt) \/ row.epoch = Now.epoch])
  /\ hurt' = ((hurt \cap row.isr) \ (IF row.epoch = Now.epoch THEN {} ELSE {row.leader})) \cup stale
  /\ UNCHANGED <<life, brokers, led, harm>>
  /\ LetIsInSync'

\* A broker is told of the n-th of them.  Its log stays what it is, and its high watermark what it last wrote down.
Hears(b, n, row, p, s, mark) ==
  LET leads == row.leader = b
      goesOn == leads /\ Told(b).leader = b /\ Told(b).epoch = row.epoch
      heard == IF goesOn THEN known[b] ELSE [c \in Brokers |-> Unheard]
      High(knew) == IF leads THEN Raised(b, log[b], heard, Waits(b, row, NoWish), knew) ELSE knew IN
  /\ n \in 2..Len(rows) /\ n > (IF view[b] > 0 THEN view[b] ELSE -view[b] - 1)
  /\ rows[n].leader = row.leader /\ rows[n].epoch = row.epoch /\ rows[n].isr = row.isr
  /\ p = Len(log[b]) /\ s = <<>>
  /\ IF view[b] > 0 THEN mark = High(hw[b]) ELSE High(0) <= mark /\ mark <= High(hw[b])
  /\ view' = [view EXCEPT ![b] = n]
  /\ known' = [known EXCEPT ![b] = heard] /\ wish' = [wish EXCEPT ![b] = NoWish]
  /\ IF leads
     THEN /\ led' = (row.epoch :> [by |-> b, log |-> log[b], hw |-> mark]) @@ led
          /\ \A i \in (hw[b] + 1)..mark :
               MayRely(i, log[b][i], row.epoch, {c \in Brokers : Keeps(log[c], i, log[b][i])})
     ELSE UNCHANGED led
  /\ hw' = [hw EXCEPT ![b] = mark]
  /\ UNCHANGED <<standing, log, harm>>

Appends(l, p, s, mark) ==
  LET records == log[l] \o Written(s) IN
  /\ Leads(l) /\ p = Len(log[l])
  /\ \A i \in DOMAIN s : s[i][1] = Told(l).epoch
  /\ mark = Raised(l, records, known[l], Waits(l, Told(l), wish[l]), hw[l])
  /\ Leading(l, records, mark)
  /\ UNCHANGED <<standing, view, known, wish, harm>>

\* A question reached a leader, who believed it, or learned only that its follower begins anew.
Asks(l, f, q, mark) ==
  /\ Believes(l, f, q)
  /\ mark = MarkAfter(l, f, q)
  /\ known' = [known EXCEPT ![l] = Heard(l, f, q)]
  /\ Leading(l, log[l], mark)
  /\ UNCHANGED <<standing, view, wish, harm>>
Parts(l, f, anew) ==
  /\ anew > known[l][f].life
  /\ known' = [known EXCEPT ![l][f] = [end |-> -1, life |-> anew]]
  /\ UNCHANGED <<standing, view, log, hw, wish, led, harm>>

\* A follower takes in what the leader of its epoch had when it answered, and a high watermark that stood then.
Takes(f, e, p, s, most, mark) ==
  LET records == log[f] \o Written(s) IN
  /\ f # Told(f).leader /\ e = Told(f).epoch /\ e \in DOMAIN led
  /\ IsTogether(led[e].log, Len(log[f]), Last(log[f]))
  /\ p = Len(log[f]) /\ records = SubSeq(led[e].log, 1, Len(records)) /\ most <= led[e].hw
  /\ mark = Max({hw[f], Min({most, Len(records)})})
  /\ log' = [log EXCEPT ![f] = records] /\ hw' = [hw EXCEPT ![f] = mark]
  /\ UNCHANGED <<standing, view, known, wish, led, harm>>

\* Or it is told that its log parts from that leader's, removes what that leader has not, and says so: from which offset
\* on, up to which, and how many were committed.
Cuts(f, e, p, s, mark, words) ==
  LET all == Len(log[f]) IN
  /\ f # Told(f).leader /\ e = Told(f).epoch /\ e \in DOMAIN led
  /\ ~IsTogether(led[e].log, all, Last(log[f]))
  /\ p = Parting(log[f], led[e].log) /\ s = <<>> /\ mark = Min({hw[f], p})
  /\ words = IF p = all THEN <<>> ELSE <<p, all, Max({0, Min({hw[f], all}) - p})>>
  /\ \A i \in (p + 1)..Min({hw[f], all}) : MayMourn(log[f][i], e)
  /\ log' = [log EXCEPT ![f] = SubSeq(@, 1, p)] /\ hw' = [hw EXCEPT ![f] = mark]
  /\ UNCHANGED <<standing, view, known, wish, led, harm>>
  /\ LetIsInSync'

\* An ISR is asked for: who joins it has all that the leader had when it began, in the life that is named.  Where an
\* answer does not tell whether it was granted, the same is asked again.
Wishes(l, isr, lives) ==
  /\ Leads(l) /\ l \in isr
  /\ IF wish[l] = NoWish
     THEN \A f \in isr \ Told(l).isr : known[l][f].end >= MustHave(l) /\ lives[f] = known[l][f].life
     ELSE wish[l] = [isr |-> isr, lives |-> lives]
  /\ wish' = [wish EXCEPT ![l] = [isr |-> isr, lives |-> lives]]
  /\ UNCHANGED <<standing, view, log, hw, known, led, harm>>

\* Its answer was a refusal, or none.
Drops(l, mark) ==
  /\ Leads(l)
  /\ wish' = [wish EXCEPT ![l] = NoWish]
  /\ mark = Raised(l, log[l], known[l], Waits(l, Told(l), NoWish), hw[l])
  /\ Leading(l, log[l], mark)
  /\ UNCHANGED <<standing, view, known, harm>>

Happens(s) ==
  CASE s[1] = "Row" -> Stands(Row(s[2], s[3], s[4], TRUE))
    [] s[1] = "Hear" -> Hears(s[2], s[3], Row(s[4], s[5], s[6], TRUE), s[7], s[8], s[9])
    [] s[1] = "Produce" -> Appends(s[2], s[3], s[4], s[5])
    [] s[1] = "Ask" ->      \* who has led without a record names that leader epoch, and has nothing that could part
         LET last == IF s[5] = 0 THEN -1 ELSE s[6] IN
         Asks(s[2], s[3], [to |-> s[2], epoch |-> s[4], at |-> s[5], last |-> last, life |-> s[7]], s[8])
    [] s[1] = "Part" -> Parts(s[2], s[3], s[4])
    [] s[1] = "Fetch" -> Takes(s[2], s[3], s[4], s[5], s[6], s[7])
    [] s[1] = "Cut" -> Cuts(s[2], s[3], s[4], s[5], s[6], s[7])
    [] s[1] = "Wish" -> Wishes(s[2], s[3], [b \in Brokers |-> IF b \in DOMAIN s[4] THEN s[4][b] ELSE 0])
    [] s[1] = "Drop" -> Drops(s[2], s[3])
    [] s[1] = "Rely" ->     \* S18: a client was given what this broker, as a leader, could let it rely on
         /\ \E e \in DOMAIN led : led[e].by = s[2] /\ led[e].hw >= s[3] /\ led[e].log[s[3]].id = s[4]
         /\ UNCHANGED <<standing, brokers, led, harm>>
    [] s[1] = "Begin" ->    \* a broker begins anew: nobody has told it anything
         /\ life' = [life EXCEPT ![s[2]] = s[3]]
         /\ view' = [view EXCEPT ![s[2]] = -Len(rows)]
         /\ Forget(s[2])
         /\ UNCHANGED <<rows, up, hurt, log, hw, led, harm>>
    [] s[1] = "Stop" ->     \* it neither leads nor follows any more
         /\ view' = [view EXCEPT ![s[2]] = IF @ > 0 THEN -@ ELSE @]
         /\ Forget(s[2])
         /\ UNCHANGED <<standing, log, hw, led, harm>>
    [] s[1] = "Delete" ->   \* who is not in sync
         /\ s[2] \notin Now.isr
         /\ log' = [log EXCEPT ![s[2]] = <<>>] /\ hw' = [hw EXCEPT ![s[2]] = 0]
         /\ UNCHANGED <<standing, view, known, wish, led, harm>>
    [] s[1] = "LosePower" ->    \* what was not synced is gone, perhaps
         /\ s[3] < Len(log[s[2]]) /\ s[4] = <<>>
         /\ log' = [log EXCEPT ![s[2]] = SubSeq(@, 1, s[3])] /\ hw' = [hw EXCEPT ![s[2]] = Min({@, s[3]})]
         /\ hurt' = IF s[2] \in Now.isr THEN hurt \cup {s[2]} ELSE hurt
         /\ harm' = [harm EXCEPT ![s[2]] = life[s[2]]]
         /\ UNCHANGED <<rows, up, life, view, known, wish, led>>
    [] s[1] = "Rest" ->     \* everybody has what the leader has, and all of it can be relied on
         /\ Leads(Now.leader) /\ view[Now.leader] = Len(rows)
         /\ \A b \in Now.isr : log[b] = log[Now.leader]
         /\ hw[Now.leader] = Len(log[Now.leader])
         /\ UNCHANGED <<standing, brokers, led, harm>>

Follow ==
  /\ at < Len(Traces[run])
  /\ Happens(Traces[run][at + 1])
  /\ at' = at + 1
  /\ UNCHANGED <<run, unseen>>

Followed == Start /\ [][Follow]_<<vars, run, at, led, harm>>
=============================================================================
