----------------------------- MODULE Partitions -----------------------------
(***************************************************************************)
(* What a controller decides about partitions, what brokers are told, and  *)
(* what they do.  One controller decides at a time (that is Seat's part);  *)
(* a failover makes a new term that knows what ZooKeeper says and no more. *)
(*                                                                         *)
(* The first half are rules: what may be written, told and obeyed.  Traces *)
(* of real runs are held to the very same rules.                           *)
(*                                                                         *)
(* Numbers like S8 are those that the history checker's rules carry.       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Brokers,      \* numbers; of those that may lead, the lowest is preferred
  Partitions,   \* each stands for a topic with one partition
  First,        \* partition -> the replicas that it is made with
  Target,       \* partition -> the replicas that an operator moves it to
  Made,         \* partitions that are there, led and told as it begins; the others are made later
  Unclean,      \* partitions that may be led by a replica that is not in sync
  MaxFaults,    \* deaths, bounces, failovers
  MaxAsked,     \* things that an operator asks for
  MaxChanges,   \* ISR changes that leaders ask for
  OneStep,      \* TRUE: one decision is one step of the leader epoch; Kafka may take several
  Clauses       \* what a broken specification lacks one of

AllClauses == {
  "leader epoch",     \* every decision about leader or ISR raises the leader epoch
  "in sync",          \* who is elected was in the ISR
  "adds nobody",      \* an election takes nobody into the ISR
  "last one",         \* the last member of an ISR is never taken out
  "live",             \* who is elected lives, as far as the controller has read
  "draining last",    \* who shuts down is elected only if there is nobody else
  "member life",      \* an ISR grows only by the very lives of the members that the leader saw in sync
  "maximal ISR",      \* a leader waits for a member that it has asked for as if it were one already
  "target in sync",   \* a move ends when its target is in sync
  "newer only",       \* a broker takes a state only if it is newer than what it has
  "this life",        \* and a request only if it was meant for this life of it
  "obey upwards",     \* and only from a controller that is not older than one it has obeyed
  "commit first",     \* what is told stands in ZooKeeper
  "all confirmed",    \* a topic is erased when every replica's broker has deleted it
  "remember deleted", \* a broker does not take back what it has deleted
  "tell again",       \* what was not told is told until it is
  "offline first",    \* a replica goes offline before its deletion starts
  "isr follows",      \* when a move ends, the ISR keeps nobody who is not of the target
  "try again" }       \* a deletion that a dead broker held up goes on when it is back

VARIABLES
  \* ZooKeeper
  reg,     \* broker -> the life in which it is registered (its broker epoch); 0: it is not
  place,   \* partition -> its replicas, and which of them are its target; both empty: there is none
  state,   \* partition -> its state znode
  marked,  \* partitions whose deletion is asked for
  \* the controller
  term,    \* its epoch
  seen,    \* broker -> the life that it has read; 0: none
  leaves,  \* brokers that have asked for their shutdown
  ps, rs,  \* the states of partitions and of replicas
  \* brokers
  life,    \* broker -> which life of it this is
  view,    \* broker -> partition -> what it was told
  hosts,   \* partition -> brokers with a replica on their disk
  obeyed,  \* broker -> the highest term that it has obeyed
  wire,    \* requests under way
  wish,    \* partition -> the ISR that its leader asks for
  synced,  \* partition -> who has every acknowledged record; nobody's knowledge, for judging only
  \* counts
  faults, asked, changes

zookeeper == <<reg, place, state, marked>>
controller == <<term, seen, leaves, ps, rs>>
brokers == <<life, view, hosts, obeyed, wish, synced>>
counts == <<faults, asked, changes>>
vars == <<zookeeper, controller, brokers, wire, counts>>

Has(clause) == clause \in Clauses
None == 0                                    \* no leader, no broker, no life
NoRow == [leader |-> None, epoch |-> -1, isr |-> {}, version |-> -1, unclean |-> FALSE]
Deleted == [NoRow EXCEPT !.epoch = 1000]     \* what a broker remembers of a replica that it has deleted
NoPlace == [all |-> {}, target |-> {}]
NoWish == [by |-> None, epoch |-> -1, version |-> -1, isr |-> {}, lives |-> <<>>]
Row(leader, epoch, isr, version, unclean) ==
  [leader |-> leader, epoch |-> epoch, isr |-> isr, version |-> version, unclean |-> unclean]
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
\* For models: where partitions are made, and where they are moved to.
FirstOnes == [p \in Partitions |-> IF p = 1 THEN {1, 2} ELSE {2, 3}]
LastOnes == [p \in Partitions |-> IF p = 1 THEN {2, 3} ELSE {1, 3}]

(*------------------------------ the tables -------------------------------*)

PartitionMoves == { <<"NonExistent", "New">>, <<"New", "Online">>, <<"New", "Offline">>, <<"Online", "Online">>,
  <<"Online", "Offline">>, <<"Offline", "Online">>, <<"Offline", "Offline">>, <<"Offline", "NonExistent">> }
ReplicaMoves == { <<"NonExistent", "New">>, <<"New", "Online">>, <<"New", "Offline">>, <<"Online", "Online">>,
  <<"Online", "Offline">>, <<"Offline", "Online">>, <<"Offline", "Offline">>, <<"Offline", "Started">>, <<"Offline", "Ineligible">>,
  <<"Started", "Successful">>, <<"Started", "Ineligible">>, <<"Ineligible", "Offline">>, <<"Ineligible", "Online">>,
  <<"Successful", "NonExistent">> }

(*------------------------- rules: what may be written --------------------*)

\* Whether one state may follow another by a decision: S8.
FollowsByDecision(old, new) ==
  /\ new.epoch = old.epoch + (IF Has("leader epoch") THEN 1 ELSE 0)
  /\ new.version = old.version + 1
  /\ OneStep => <<new.leader, new.isr>> # <<old.leader, old.isr>> \/ new.unclean # old.unclean \/ new.leader # None

\* S14, S15: who may lead next, of those believed to live.
Candidates(p, old, living) ==
  {b \in place[p].all : (Has("in sync") => b \in old.isr) /\ (Has("live") => b \in living)}
Preferable(S, leaving) == IF Has("draining last") /\ S \ leaving # {} THEN S \ leaving ELSE S

\* A state with a leader out of the ISR: an election, or the ISR without those that are gone.
MayElect(p, old, new, living, leaving) ==
  /\ old # NoRow /\ FollowsByDecision(old, new)
  /\ new.leader \in Candidates(p, old, living)
  /\ new.leader # old.leader => new.leader \in Preferable(Candidates(p, old, living), leaving)
  /\ Has("in sync") => new.leader \in new.isr
  /\ Has("adds nobody") => new.isr \subseteq old.isr
  /\ ~new.unclean \/ old.unclean

\* A state without a leader: nobody of the ISR lives.
MayLose(p, old, new, living) ==
  /\ old # NoRow /\ FollowsByDecision(old, new)
  /\ new.leader = None
  /\ new.isr = old.isr \/ (~OneStep /\ new.isr \subseteq old.isr /\ new.isr # {})
  /\ OneStep => Candidates(p, old, living) = {}

\* S17: nobody of the ISR lives, and it is allowed to lose records.
MayElectUnclean(p, old, new, living, allowed) ==
  /\ old # NoRow /\ FollowsByDecision(old, new)
  /\ allowed
  /\ (old.isr \cap living) = {}
  /\ new.leader \in place[p].all \cap living
  /\ new.isr = {new.leader}
  /\ new.unclean

\* The first state of a partition.
MayBegin(p, new, living) ==
  /\ new.epoch = 0 /\ new.version = 0
  /\ new.leader \in new.isr
  /\ new.isr \subseteq place[p].all
  /\ Has("live") => new.isr \subseteq living

\* An ISR as its leader asked for it: leader and leader epoch stay.  S8, S16.
MayGrant(p, old, new, w, living, lives, leaving) ==
  /\ new.leader = old.leader /\ new.epoch = old.epoch /\ new.version = old.version + 1
  /\ new.isr = w.isr /\ new.leader \in new.isr
  /\ new.isr \subseteq place[p].all
  /\ w.by = old.leader /\ w.epoch = old.epoch
  /\ w.version = old.version
  /\ \A b \in new.isr \ old.isr :
       b \in living /\ b \notin leaving /\ (Has("member life") => w.lives[b] = lives[b])

\* S22: a place becomes its target.
MayEnd(p, new) == Has("target in sync") => place[p].target \subseteq new.isr

(*------------------------- rules: what is obeyed -------------------------*)

\* S6, S7.
MayObey(b, m) ==
  /\ Has("obey upwards") => m.term >= obeyed[b]
  /\ Has("this life") => m.life >= life[b]

IsNewer(row, known) == Has("newer only") => row.epoch > known.epoch \/ (row.epoch = known.epoch /\ row.version > known.version)

(*------------------------------- the start -------------------------------*)

Init ==
  /\ reg = [b \in Brokers |-> 1] /\ seen = reg /\ life = reg
  /\ place = [p \in Partitions |-> IF p \in Made THEN [all |-> First[p], target |-> First[p]] ELSE NoPlace]
  /\ state = [p \in Partitions |-> IF p \in Made THEN Row(Min(First[p]), 0, First[p], 0, FALSE) ELSE NoRow]
  /\ marked = {} /\ leaves = {} /\ wire = {}
  /\ term = 1
  /\ ps = [p \in Partitions |-> IF p \in Made THEN "Online" ELSE "NonExistent"]
  /\ rs = [p \in Partitions |-> [b \in Brokers |-> IF p \in Made /\ b \in First[p] THEN "Online" ELSE "NonExistent"]]
  /\ view = [b \in Brokers |-> [p \in Partitions |-> IF b \in place[p].all THEN state[p] ELSE NoRow]]
  /\ hosts = [p \in Partitions |-> place[p].all]
  /\ obeyed = [b \in Brokers |-> 1]
  /\ wish = [p \in Partitions |-> NoWish]
  /\ synced = hosts
  /\ faults = 0 /\ asked = 0 /\ changes = 0

Living == {b \in Brokers : seen[b] # None}
Exists(p) == place[p].all # {}
IsErasing(p) == \E b \in Brokers : rs[p][b] \in {"Started", "Successful"} /\ p \in marked
Leader(p) == state[p].leader
Serves(p) == ps[p] \in {"Online", "Offline"} /\ p \notin marked

Fault == faults < MaxFaults /\ faults' = faults + 1 /\ UNCHANGED <<asked, changes>>
Ask == asked < MaxAsked /\ asked' = asked + 1 /\ UNCHANGED <<faults, changes>>
Write(p, row) == state' = [state EXCEPT ![p] = row]

(*------------------------------ the operator -----------------------------*)

Create(p) ==
  /\ ~Exists(p) /\ state[p] = NoRow /\ p \notin marked /\ ps[p] = "NonExistent" /\ hosts[p] = {}
  /\ \A b \in Brokers : view[b][p] = NoRow   \* a topic of the same name is another topic: it has another id
  /\ place' = [place EXCEPT ![p] = [all |-> First[p], target |-> First[p]]]
  /\ ps' = [ps EXCEPT ![p] = "New"]
  /\ rs' = [rs EXCEPT ![p] = [b \in Brokers |-> IF b \in First[p] THEN "New" ELSE @[b]]]
  /\ UNCHANGED <<reg, state, marked, term, seen, leaves, brokers, wire, counts>>

AskMove(p) ==
  /\ Serves(p) /\ place[p].target = place[p].all /\ Target[p] # place[p].all
  /\ Ask
  /\ place' = [place EXCEPT ![p] = [all |-> @.all \cup Target[p], target |-> Target[p]]]
  /\ rs' = [rs EXCEPT ![p] = [b \in Brokers |->
       IF b \in Target[p] \ place[p].all /\ @[b] = "NonExistent" THEN "New" ELSE @[b]]]
  /\ UNCHANGED <<reg, state, marked, term, seen, leaves, ps, brokers, wire>>

AskDeletion(p) ==
  /\ Exists(p) /\ p \notin marked /\ ps[p] \in {"Online", "Offline"} /\ place[p].target = place[p].all
  /\ Ask
  /\ marked' = marked \cup {p}
  /\ UNCHANGED <<reg, place, state, controller, brokers, wire>>

AskShutdown(b) ==
  /\ reg[b] # None /\ seen[b] = reg[b] /\ b \notin leaves
  /\ Ask
  /\ leaves' = leaves \cup {b}
  /\ UNCHANGED <<zookeeper, term, seen, ps, rs, brokers, wire>>

(*------------------------- the controller decides ------------------------*)

\* New to Online.
Begin(p, b) ==
  LET new == Row(b, 0, First[p] \cap Living, 0, FALSE) IN
  /\ ps[p] = "New" /\ state[p] = NoRow /\ p \notin marked
  /\ MayBegin(p, new, Living) /\ b = Min(new.isr)
  /\ Write(p, new)
  /\ ps' = [ps EXCEPT ![p] = "Online"]
  /\ rs' = [rs EXCEPT ![p] = [c \in Brokers |-> IF c \in new.isr THEN "Online" ELSE
       IF c \in First[p] THEN "Offline" ELSE @[c]]]
  /\ synced' = [synced EXCEPT ![p] = new.isr]
  /\ UNCHANGED <<reg, place, marked, term, seen, leaves, life, view, hosts, obeyed, wish, wire, counts>>

\* Why a partition needs a decision: its leader is gone, it has none, it drains, an ISR member is gone, or a better
\* leader is there.
NeedsElection(p) == ps[p] = "Offline" \/ Leader(p) \notin Living \/ Leader(p) \in leaves
NeedsShrink(p) == \E b \in state[p].isr \ {Leader(p)} : b \notin Living \/ b \in leaves
NeedsBalance(p) == LET b == Min(place[p].all) IN Leader(p) # b /\ b \in (state[p].isr \cap Living) \ leaves
Kept(p, b) == {c \in state[p].isr : c = b \/ (c \in Living /\ c \notin leaves)}

\* Online or Offline to Online.
Elect(p, b) ==
  LET old == state[p]
      isr == Kept(p, b)
      new == Row(b, old.epoch + (IF Has("leader epoch") THEN 1 ELSE 0),
                 IF Has("adds nobody") THEN isr ELSE isr \cup (place[p].all \cap Living), old.version + 1, FALSE) IN
  /\ Serves(p)
  /\ \/ NeedsElection(p)
     \/ ~NeedsElection(p) /\ NeedsShrink(p) /\ b = Leader(p)
     \/ ~NeedsElection(p) /\ NeedsBalance(p) /\ b = Min(place[p].all)
  /\ (b = Leader(p) /\ ps[p] = "Online") => new.isr # old.isr
  /\ MayElect(p, old, [new EXCEPT !.unclean = old.unclean], Living, leaves)
  /\ Write(p, [new EXCEPT !.unclean = old.unclean])
  /\ ps' = [ps EXCEPT ![p] = "Online"]
  /\ UNCHANGED <<reg, place, marked, term, seen, leaves, rs, brokers, wire, counts>>

\* Offline stays Offline: nobody can lead.
Lose(p) ==
  LET old == state[p]
      new == Row(None, old.epoch + 1, IF Has("last one") THEN old.isr ELSE {}, old.version + 1, old.unclean) IN
  /\ Serves(p) /\ ps[p] = "Offline" /\ Leader(p) # None
  /\ IF Has("last one") THEN MayLose(p, old, new, Living) ELSE Candidates(p, old, Living) = {}
  /\ Write(p, new)
  /\ UNCHANGED <<reg, place, marked, controller, brokers, wire, counts>>

\* Offline to Online, and what only the others have is lost.
ElectUnclean(p, b) ==
  LET old == state[p]
      new == Row(b, old.epoch + 1, {b}, old.version + 1, TRUE) IN
  /\ Serves(p) /\ ps[p] = "Offline"
  /\ b \in hosts[p]
  /\ MayElectUnclean(p, old, new, Living, p \in Unclean)
  /\ Write(p, new)
  /\ ps' = [ps EXCEPT ![p] = "Online"]
  /\ synced' = [synced EXCEPT ![p] = {b}]
  /\ UNCHANGED <<reg, place, marked, term, seen, leaves, rs, life, view, hosts, obeyed, wish, wire, counts>>

\* A leader's wish is granted; a replica that was being added is in sync with it.
Grant(p) ==
  LET old == state[p]
      w == wish[p]
      new == Row(old.leader, old.epoch, w.isr, old.version + 1, FALSE) IN
  /\ w # NoWish /\ Serves(p) /\ ps[p] = "Online"
  /\ w.isr # old.isr
  /\ MayGrant(p, old, new, w, Living, seen, leaves)
  /\ \A b \in w.isr \ old.isr : seen[b] = reg[b]   \* assumed: registrations are read before wishes are granted
  /\ Write(p, new)
  /\ rs' = [rs EXCEPT ![p] = [b \in Brokers |-> IF b \in new.isr /\ @[b] = "New" THEN "Online" ELSE @[b]]]
  /\ UNCHANGED <<reg, place, marked, term, seen, leaves, ps, brokers, wire, counts>>

\* The target is in sync: the assignment becomes it, under a leader out of it, in one transaction.
EndMove(p, b) ==
  LET old == state[p]
      isr == (old.isr \cap place[p].target \cap Living) \ leaves
      new == Row(b, old.epoch + 1, IF Has("isr follows") THEN isr ELSE old.isr, old.version + 1, old.unclean) IN
  /\ Serves(p) /\ ps[p] = "Online" /\ place[p].target # place[p].all
  /\ Has("target in sync") => place[p].target \subseteq old.isr
  /\ b \in isr
  /\ MayElect(p, old, new, Living, leaves)
  /\ Write(p, new)
  /\ place' = [place EXCEPT ![p] = [all |-> @.target, target |-> @.target]]
  /\ rs' = [rs EXCEPT ![p] = [c \in Brokers |->
       IF c \in place[p].all \ place[p].target /\ @[c] \in {"New", "Online"} THEN "Offline" ELSE @[c]]]
  /\ UNCHANGED <<reg, marked, term, seen, leaves, ps, brokers, wire, counts>>

\* An operator takes a move back.
CancelMove(p, b) ==
  LET old == state[p]
      origin == First[p]
      isr == old.isr \cap origin
      new == Row(b, old.epoch + 1, isr, old.version + 1, old.unclean) IN
  /\ Serves(p) /\ ps[p] = "Online" /\ place[p].target # place[p].all /\ place[p].target = Target[p]
  /\ Ask
  /\ b \in isr
  /\ MayElect(p, old, new, Living, leaves)
  /\ Write(p, new)
  /\ place' = [place EXCEPT ![p] = [all |-> origin, target |-> origin]]
  /\ rs' = [rs EXCEPT ![p] = [c \in Brokers |->
       IF c \notin origin /\ @[c] \in {"New", "Online"} THEN "Offline" ELSE @[c]]]
  /\ UNCHANGED <<reg, marked, term, seen, leaves, ps, brokers, wire>>

(*--------------------- the controller follows the brokers ----------------*)

\* It reads that a broker is gone, or is there in another life: then it was gone.
SeeGone(b) ==
  /\ seen[b] # None /\ reg[b] # seen[b]
  /\ seen' = [seen EXCEPT ![b] = None]
  /\ leaves' = leaves \ {b}
  /\ rs' = [p \in Partitions |-> [rs[p] EXCEPT ![b] =
       CASE @ \in {"New", "Online"} -> "Offline" [] @ = "Started" -> "Ineligible" [] OTHER -> @]]
  /\ ps' = [p \in Partitions |-> IF ps[p] = "Online" /\ Leader(p) = b THEN "Offline" ELSE ps[p]]
  /\ UNCHANGED <<zookeeper, term, brokers, wire, counts>>

SeeBack(b) ==
  /\ seen[b] = None /\ reg[b] # None
  /\ seen' = [seen EXCEPT ![b] = reg[b]]
  /\ rs' = [p \in Partitions |-> [rs[p] EXCEPT ![b] =
       CASE @ = "Offline" /\ b \in place[p].all /\ p \notin marked -> "Online"
         [] @ = "Ineligible" /\ Has("try again") -> "Offline" [] OTHER -> @]]
  /\ UNCHANGED <<zookeeper, term, leaves, ps, brokers, wire, counts>>

\* A new term: what it knows is what ZooKeeper says.  Requests of the old one are still under way.
Failover ==
  /\ Fault
  /\ term' = term + 1
  /\ seen' = reg
  /\ leaves' = {}
  /\ ps' = [p \in Partitions |-> CASE ~Exists(p) -> "NonExistent" [] state[p] = NoRow -> "New"
       [] p \in marked -> "Offline" [] \E b \in Brokers : b = Leader(p) /\ reg[b] # None -> "Online" [] OTHER -> "Offline"]
  /\ rs' = [p \in Partitions |-> [b \in Brokers |-> CASE b \notin place[p].all -> "NonExistent"
       [] state[p] = NoRow -> "New" [] p \in marked -> "Offline" [] reg[b] = None -> "Offline"
       [] b \notin place[p].target \cup state[p].isr -> "Online" [] b \in state[p].isr -> "Online" [] OTHER -> "New"]]
  /\ UNCHANGED <<zookeeper, brokers, wire>>

(*--------------------------- the controller tells ------------------------*)

Owed(p, b) == view[b][p].epoch < state[p].epoch \/ (view[b][p].epoch = state[p].epoch /\ view[b][p].version < state[p].version)

\* LeaderAndIsr to a replica.  One request of a term is under way about a partition; what was not heard is sent again.
Send(p, b) ==
  /\ Serves(p) /\ ps[p] = "Online" /\ state[p] # NoRow
  /\ b \in place[p].all /\ seen[b] # None /\ Owed(p, b)
  /\ LET m == [to |-> b, life |-> seen[b], term |-> term, p |-> p, what |-> "state", copy |-> FALSE,
               row |-> IF Has("commit first") THEN state[p]
                       ELSE [state[p] EXCEPT !.epoch = @ + 1, !.version = @ + 1]] IN
     /\ m \notin wire
     /\ wire' = {n \in wire : n.copy \/ ~(n.to = b /\ n.p = p /\ n.term = term)} \cup {m}
  /\ Has("tell again") \/ ~\E n \in wire : n.to = b /\ n.p = p /\ n.row = state[p]
  /\ UNCHANGED <<zookeeper, controller, brokers, counts>>

\* StopReplica with delete, to a replica of a topic that goes, or one that a move has dropped.
StartDeletion(p, b) ==
  /\ rs[p][b] = "Offline" /\ seen[b] # None
  /\ (p \in marked /\ b \in place[p].all) \/ (b \notin place[p].all)
  /\ p \in marked => ps[p] = "Offline" /\ \A c \in Brokers : rs[p][c] \notin {"New", "Online"}
  /\ rs' = [rs EXCEPT ![p][b] = "Started"]
  /\ wire' = {n \in wire : n.copy \/ ~(n.to = b /\ n.p = p /\ n.term = term)} \cup
       {[to |-> b, life |-> seen[b], term |-> term, p |-> p, what |-> "delete", copy |-> FALSE, row |-> NoRow]}
  /\ UNCHANGED <<zookeeper, term, seen, leaves, ps, brokers, counts>>

\* A deletion begins: the partition and its replicas go offline.
BeginDeletion(p) ==
  /\ p \in marked /\ ps[p] \in {"Online", "Offline"}
  /\ \E b \in Brokers : rs[p][b] \in {"New", "Online"}
  /\ ps' = [ps EXCEPT ![p] = "Offline"]
  /\ rs' = [rs EXCEPT ![p] = [b \in Brokers |-> CASE @[b] \in {"New", "Online"} -> IF Has("offline first") THEN "Offline" ELSE "Started"
       [] OTHER -> @[b]]]
  /\ wire' = {n \in wire : n.copy \/ n.p # p \/ n.term # term \/ n.what = "delete"}
  /\ UNCHANGED <<zookeeper, term, seen, leaves, brokers, counts>>

\* A replica whose broker is gone cannot be deleted now.
Park(p, b) ==
  /\ p \in marked /\ rs[p][b] = "Offline" /\ seen[b] = None
  /\ rs' = [rs EXCEPT ![p][b] = "Ineligible"]
  /\ UNCHANGED <<zookeeper, term, seen, leaves, ps, brokers, wire, counts>>

\* Its broker has said that it is deleted.
Confirm(p, b) ==
  /\ rs[p][b] = "Started" /\ b \notin hosts[p]
  /\ ~\E n \in wire : n.to = b /\ n.p = p /\ n.term = term /\ ~n.copy
  /\ rs' = [rs EXCEPT ![p][b] = "Successful"]
  /\ UNCHANGED <<zookeeper, term, seen, leaves, ps, brokers, wire, counts>>

\* A dropped replica is deleted: it is forgotten.
Forget(p, b) ==
  /\ rs[p][b] = "Successful" /\ b \notin place[p].all
  /\ rs' = [rs EXCEPT ![p][b] = "NonExistent"]
  /\ UNCHANGED <<zookeeper, term, seen, leaves, ps, brokers, wire, counts>>

\* All are deleted: the znodes go, the marker last.
Erase(p) ==
  /\ p \in marked /\ Exists(p) /\ ps[p] = "Offline"
  /\ \A b \in place[p].all : rs[p][b] \in {"Successful"} \cup IF Has("all confirmed") THEN {} ELSE {"Ineligible"}
  /\ place' = [place EXCEPT ![p] = NoPlace]
  /\ state' = [state EXCEPT ![p] = NoRow]
  /\ marked' = marked \ {p}
  /\ ps' = [ps EXCEPT ![p] = "NonExistent"]
  /\ rs' = [rs EXCEPT ![p] = [b \in Brokers |-> IF @[b] = "Successful" THEN "NonExistent" ELSE @[b]]]
  /\ UNCHANGED <<reg, term, seen, leaves, brokers, wire, counts>>

(*------------------------------- the brokers -----------------------------*)

\* A request arrives: it is obeyed, or refused.
Take(m) ==
  /\ m \in wire /\ m.what # "lost"
  /\ reg[m.to] # None
  /\ IF ~MayObey(m.to, m) THEN UNCHANGED brokers
     ELSE /\ obeyed' = [obeyed EXCEPT ![m.to] = m.term]
          /\ CASE m.what = "delete" ->
                    /\ hosts' = [hosts EXCEPT ![m.p] = @ \ {m.to}]
                    /\ view' = [view EXCEPT ![m.to][m.p] = IF Has("remember deleted") THEN Deleted ELSE NoRow]
                    /\ synced' = [synced EXCEPT ![m.p] = @ \ {m.to}]
                    /\ wish' = wish
               [] m.what = "state" /\ IsNewer(m.row, view[m.to][m.p]) ->
                    /\ view' = [view EXCEPT ![m.to][m.p] = m.row]
                    /\ hosts' = [hosts EXCEPT ![m.p] = @ \cup {m.to}]
                    /\ wish' = [wish EXCEPT ![m.p] = IF wish[m.p].by = m.to THEN NoWish ELSE @]
                    /\ synced' = synced
               [] OTHER -> UNCHANGED <<view, hosts, wish, synced>>
          /\ UNCHANGED life
  /\ UNCHANGED <<zookeeper, controller>>

Hear(m) == Take(m) /\ wire' = wire \ {m} /\ UNCHANGED counts

\* A request arrives, and a copy of it arrives at some later time: its answer was lost.
HearTwice(m) == ~m.copy /\ Take(m) /\ wire' = (wire \ {m}) \cup {[m EXCEPT !.copy = TRUE]} /\ Fault

\* A request never arrives, or its sender gives up waiting.
Drop(m) == m \in wire /\ m.what = "state" /\ wire' = (wire \ {m}) \cup {[m EXCEPT !.what = "lost"]} /\ Fault
           /\ UNCHANGED <<zookeeper, controller, brokers>>

Leads(b, p) == view[b][p].leader = b /\ reg[b] # None
Follows(b, p, l) == view[b][p].epoch = view[l][p].epoch /\ view[b][p].leader = l /\ reg[b] # None
\* Whom a leader waits for: S18.
Quorum(l, p) == view[l][p].isr \cup IF wish[p].by = l /\ Has("maximal ISR") THEN wish[p].isr ELSE {}

\* A leader acknowledges a record that all whom it waits for have.
Acknowledge(p, l) ==
  /\ Leads(l, p)
  /\ \A b \in Quorum(l, p) \ {l} : Follows(b, p, l)
  /\ ~(synced[p] \subseteq Quorum(l, p))
  /\ synced' = [synced EXCEPT ![p] = @ \cap Quorum(l, p)]
  /\ UNCHANGED <<zookeeper, controller, life, view, hosts, obeyed, wish, wire, counts>>

\* A follower has fetched all that its leader has; the leader asks for it to be in the ISR, as the life that it saw.
CatchUp(p, l, b) ==
  /\ changes < MaxChanges
  /\ Leads(l, p) /\ b # l /\ Follows(b, p, l) /\ wish[p] = NoWish
  /\ l \in synced[p] /\ b \notin view[l][p].isr
  /\ synced' = [synced EXCEPT ![p] = @ \cup {b}]
  /\ wish' = [wish EXCEPT ![p] = [by |-> l, epoch |-> view[l][p].epoch, version |-> view[l][p].version,
                                  isr |-> view[l][p].isr \cup {b}, lives |-> life]]
  /\ changes' = changes + 1
  /\ UNCHANGED <<zookeeper, controller, life, view, hosts, obeyed, wire, faults, asked>>

\* A follower is slow; the leader asks to go on without it.
FallBehind(p, l, b) ==
  /\ changes < MaxChanges
  /\ Leads(l, p) /\ b # l /\ b \in view[l][p].isr /\ wish[p] = NoWish
  /\ wish' = [wish EXCEPT ![p] = [by |-> l, epoch |-> view[l][p].epoch, version |-> view[l][p].version,
                                  isr |-> view[l][p].isr \ {b}, lives |-> life]]
  /\ changes' = changes + 1
  /\ UNCHANGED <<zookeeper, controller, life, view, hosts, obeyed, synced, wire, faults, asked>>

Forgotten(b) ==
  /\ view' = [view EXCEPT ![b] = [p \in Partitions |-> IF view[b][p] = Deleted THEN view[b][p] ELSE NoRow]]
  /\ wish' = [p \in Partitions |-> IF wish[p].by = b THEN NoWish ELSE wish[p]]
  /\ obeyed' = [obeyed EXCEPT ![b] = 0]
  /\ UNCHANGED hosts

\* Disks that are lost are those of replicas that are not in sync: who loses the last copy loses it, whatever we do.
LosesDisk(b) ==
  synced' \in {synced, [p \in Partitions |-> IF b \in state[p].isr THEN synced[p] ELSE synced[p] \ {b}]}

Die(b) ==
  /\ reg[b] # None
  /\ Fault
  /\ reg' = [reg EXCEPT ![b] = None]
  /\ Forgotten(b) /\ UNCHANGED <<life, synced>>
  /\ UNCHANGED <<place, state, marked, controller, wire>>

\* Faster than anybody notices.
Bounce(b) ==
  /\ reg[b] # None
  /\ Fault
  /\ life' = [life EXCEPT ![b] = @ + 1]
  /\ reg' = [reg EXCEPT ![b] = life[b] + 1]
  /\ Forgotten(b) /\ LosesDisk(b)
  /\ UNCHANGED <<place, state, marked, controller, wire>>

Restart(b) ==
  /\ reg[b] = None
  /\ life' = [life EXCEPT ![b] = @ + 1]
  /\ reg' = [reg EXCEPT ![b] = life[b] + 1]
  /\ LosesDisk(b)
  /\ UNCHANGED <<view, hosts, obeyed, wish, place, state, marked, controller, wire, counts>>

\* Its shutdown is granted when it leads nothing that somebody else could lead: S27.
Leave(b) ==
  /\ b \in leaves /\ reg[b] # None /\ reg[b] = seen[b]
  /\ \A p \in Partitions : Leader(p) = b => (state[p].isr \cap Living) \ {b} = {}
  /\ reg' = [reg EXCEPT ![b] = None]
  /\ Forgotten(b) /\ UNCHANGED <<life, synced>>
  /\ UNCHANGED <<place, state, marked, controller, wire, counts>>

\* By these names TLC tells how often they were taken.
SomeHeard == \E m \in wire : Hear(m)
SomeHeardTwice == \E m \in wire : HearTwice(m)
SomeDropped == \E m \in wire : Drop(m)

Decide == \E p \in Partitions :
  \/ \E b \in Brokers : Begin(p, b) \/ Elect(p, b) \/ ElectUnclean(p, b) \/ EndMove(p, b) \/ CancelMove(p, b)
  \/ Lose(p) \/ Grant(p)
Delete == \E p \in Partitions :
  \/ BeginDeletion(p) \/ Erase(p)
  \/ \E b \in Brokers : StartDeletion(p, b) \/ Park(p, b) \/ Confirm(p, b) \/ Forget(p, b)

Next ==
  \/ \E p \in Partitions : Create(p) \/ AskMove(p) \/ AskDeletion(p)
  \/ Decide \/ Delete \/ Failover
  \/ \E b \in Brokers : AskShutdown(b) \/ SeeGone(b) \/ SeeBack(b) \/ Die(b) \/ Bounce(b) \/ Restart(b) \/ Leave(b)
  \/ \E p \in Partitions, b \in Brokers : Send(p, b) \/ Acknowledge(p, b)
  \/ SomeHeard \/ SomeHeardTwice \/ SomeDropped
  \/ \E p \in Partitions, l, b \in Brokers : CatchUp(p, l, b) \/ FallBehind(p, l, b)

\* Whoever has something to do does it in the end.  Faults, wishes of operators and slow followers need not happen.
Fair ==
  /\ \A b \in Brokers : WF_vars(SeeGone(b)) /\ WF_vars(SeeBack(b)) /\ WF_vars(Restart(b)) /\ WF_vars(Leave(b))
  /\ \A p \in Partitions :
       /\ WF_vars(Create(p)) /\ WF_vars(BeginDeletion(p)) /\ WF_vars(Erase(p)) /\ WF_vars(Lose(p)) /\ WF_vars(Grant(p))
       /\ \A b \in Brokers :
            /\ WF_vars(Begin(p, b)) /\ WF_vars(Elect(p, b)) /\ WF_vars(EndMove(p, b)) /\ WF_vars(Send(p, b))
            /\ WF_vars(StartDeletion(p, b)) /\ WF_vars(Park(p, b)) /\ WF_vars(Confirm(p, b)) /\ WF_vars(Forget(p, b))
            /\ WF_vars(\E m \in wire : m.to = b /\ m.p = p /\ Hear(m))

Spec == Init /\ [][Next]_vars /\ Fair

(*------------------------------ what holds -------------------------------*)

\* S11, S12, S13.
LeaderIsInSync == \A p \in Partitions : Leader(p) # None => Leader(p) \in state[p].isr
IsrIsNeverEmpty == \A p \in Partitions : state[p] # NoRow => state[p].isr # {}
IsrIsAssigned == \A p \in Partitions : state[p].isr \subseteq place[p].all

\* S8: every decision is one step of the leader epoch, what its leader asked for is none, and it never falls.
LeaderEpochsCountDecisions ==
  [][\A p \in Partitions : state[p] # NoRow /\ state'[p] # NoRow /\ state'[p] # state[p] =>
       /\ state'[p].version = state[p].version + 1
       /\ \/ state'[p].epoch = state[p].epoch + 1
          \/ state'[p].epoch = state[p].epoch /\ state'[p].leader = state[p].leader /\ wish[p].isr = state'[p].isr]_vars

\* Two brokers never both lead in one leader epoch.
OneLeaderAnEpoch == \A p \in Partitions, a, b \in Brokers :
  view[a][p].leader = a /\ view[b][p].leader = b /\ view[a][p].epoch = view[b][p].epoch => a = b

\* S14: nothing that was acknowledged is lost by a clean election; S18, S19: every member of the ISR has it.
WhoIsInSyncHasAll == \A p \in Partitions : state[p] # NoRow /\ p \notin marked => state[p].isr \subseteq synced[p]

\* S15, S26: who is newly named lives, as far as was read, and does not drain if another could lead.
WhoIsElectedLives ==
  [][\A p \in Partitions : state'[p].epoch # state[p].epoch /\ Leader(p)' # None =>
       /\ Leader(p)' \in Living
       /\ Leader(p)' # Leader(p) /\ Leader(p)' \in leaves => (state[p].isr \cap Living) \ leaves \subseteq {}]_vars

\* S6: no broker obeys a term below one that it has obeyed in this life.
BrokersObeyUpwards == [][\A b \in Brokers : life'[b] = life[b] /\ reg'[b] = reg[b] => obeyed'[b] >= obeyed[b]]_vars

\* S7: nothing that was meant for an earlier life is applied.
OnlyThisLifeObeys == [][\A m \in wire : m \notin wire' /\ m.life < life[m.to] => view'[m.to][m.p] = view[m.to][m.p]]_vars

\* S28: what a broker knows of a partition never gets older, in one life.
ViewsNeverFall ==
  [][\A b \in Brokers, p \in Partitions : reg'[b] = reg[b] /\ view'[b][p] # NoRow =>
       view'[b][p].epoch > view[b][p].epoch \/
       (view'[b][p].epoch = view[b][p].epoch /\ view'[b][p].version >= view[b][p].version)]_vars

\* S29: nobody knows what never stood.
NobodyIsAhead == \A b \in Brokers, p \in Partitions :
  view[b][p].epoch < 1000 /\ state[p] # NoRow => view[b][p].epoch <= state[p].epoch

\* S22: a move ends in sync.
MovesEndInSync ==
  [][\A p \in Partitions : place[p].target # place[p].all /\ place'[p].all = place[p].target =>
       place[p].target \subseteq state[p].isr]_vars

\* S23: a topic is erased when nobody has a replica of it, but for who was dropped by a move before.
ErasedIsDeleted ==
  [][\A p \in Partitions : Exists(p) /\ place'[p] = NoPlace => hosts[p] \cap place[p].all = {}]_vars

\* S24: what is erased does not come back; a broker's late request of it is refused.
DeletedStaysDeleted ==
  [][\A p \in Partitions : ~Exists(p) /\ ~Exists(p)' => hosts'[p] \subseteq hosts[p]]_vars

\* The moves are those of the tables, but where a new term begins from what it finds.
MovesAreInTheTables ==
  [][term' = term => \A p \in Partitions :
       /\ ps'[p] # ps[p] => <<ps[p], ps'[p]>> \in PartitionMoves
       /\ \A b \in Brokers : rs'[p][b] # rs[p][b] => <<rs[p][b], rs'[p][b]>> \in ReplicaMoves]_vars

\* L3, L14: in the end every partition with a live replica in sync is led, and its leader knows.
CanBeLed(p) == state[p] # NoRow /\ p \notin marked /\ \E b \in state[p].isr : reg[b] # None
IsLed(p) == Leader(p) # None /\ reg[Leader(p)] # None /\ view[Leader(p)][p] = state[p]
EverythingIsLed == \A p \in Partitions : []<>(CanBeLed(p) => IsLed(p))

\* L6: what is to be deleted is gone in the end.
DeletionsEnd == \A p \in Partitions : p \in marked ~> p \notin marked
=============================================================================
