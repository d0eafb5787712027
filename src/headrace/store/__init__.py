"""The segment store: the state of a query as files, and one commit a batch.

A checkpoint is a folder of immutable files. Nothing in it is ever changed or renamed: a file is created, whole, under a
name that did not exist, and later removed. So the store needs only five calls of a file system (`storage.py`), and one
of them carries all the safety: *create if absent*.

    epochs/<epoch>                 who drives the query: one file for every start
    plans/<batch>                  what a batch reads, written before it runs; if it is lost, plans/<batch>-1, -2, …
    data/<batch>-<epoch>-<name>    state and rows that tasks have written
    data/<batch>-<epoch>-trip-<n>  what trip n of a batch has made: for the tasks of trip n + 1, and for nobody else
    commits/<batch>                the one file that makes a batch exist
    pins/<batch>-<name>            a reader is using this commit
    floors/<batch>                 commits before this one do not exist any more: they are being removed
    published/<batch>              the sinks of the driver's process have had this batch

**Segments.** The state of an operator is a set of traces (`headrace.trace`), a trace is a list of immutable segments,
and a segment has a unique name. So saving state means writing the segments that are new, in one file per task, and
naming all that are alive. Small segments travel in the task's report and live in the commit itself. Files are
*bundles* (`bundle.py`): blocks with checksums, mapped into memory when they are read. The process that has written one
uses it in the same way, and gives up its own copy: state is no memory of a worker, but pages of files, which the
workers of a machine share. Files of stores behind a network are kept on the machine's disk for that (`kept_files.py`).

**Commits.** The commit of batch n names everything the batch made: the sources' positions and progress, the state of
every operator in every bucket, the counts, and the parts that sinks have to publish. *What no commit names does not
exist.* Tasks that fail, are repeated, run twice at once, or go on after they were given up leave only files that no
commit names.

**The protocol** (`log.py`), and why it is safe:

1. A driver claims an *epoch*: it creates the next file under `epochs/`. Of two drivers that try at once, one gets the
   number and the other takes the next one. The newest epoch owns the query. (A slow driver may get a number that others
   have taken and removed meanwhile; then there is a newer one, and it owns nothing.)
2. It reads the last commit, n - 1. It publishes what that commit names and a sink lacks. Only the last one can lack
   anything, because every driver publishes batch n before it plans batch n + 1.
3. It plans batch n and creates `plans/n`. If that file exists, an earlier driver has planned the batch and died, or is
   about to: the plan that is there is the one that counts. So every attempt at a batch reads the same input.
4. It runs the batch. Tasks write files whose names carry the epoch and the batch. Where something goes round a loop,
   it runs the tasks again, trip after trip, each from what the one before has made. What a trip has made is written
   down in the form of a commit, but as data: no commit names it, so it does not exist for anybody but the tasks of this
   driver's next trip. After a crash the batch is run from its beginning.
5. It looks for a newer epoch; if there is one, it stops (`Superseded`). Otherwise it creates `commits/n`. If that file
   exists, another driver was faster: this one stops too. There is at most one commit for a batch, because a file is
   created at most once, and a commit names only files that were complete before it was created.
6. It publishes, idempotently, by (output, batch, part). A crash between 5 and 6 is mended by step 2 of the next start.

Between looking and creating in step 5 a newer driver may begin. Then the older one may still commit batch n once. The
newer driver, which has read commit n - 1, finds `commits/n` taken, drops its own attempt and goes on from that commit:
both attempts had the same plan, so nothing is lost and nothing happens twice. The older driver finds the newer epoch
before its next commit. While a new driver looks around, the older one may commit, publish, plan and clean up once: so
what seems to be missing at a start, in the store or ahead in a sink, is missing only if a second look says so, too.

It may also sleep between looking and creating until newer drivers have committed batch n, and removed that commit:
then it creates `commits/n` anew. But the floor is raised before a commit is removed, and what is below the floor does
not exist. So a driver looks at the floor after it has created a commit, and stops if the commit is below.

**Clean-up** (`cleanup.py`) removes the files of batches up to n which no kept commit names, once this driver has
committed batch n: from then on no driver can make a commit of a batch up to n that counts, so none will ever name them.
At least two commits are kept: the older driver may commit batch n and clean up while the tasks of the newer one read
commit n - 1. Readers pin the commit that they read.

`tests/unit/store` has a model of all this, which looks at every order of steps of small runs, and simulations in which
the real code crashes, sleeps, meets itself and gets wrong answers from the store at any call.

**Object stores** (`objects.py`) have the five calls, no rename, and listings that are no instant but show what was
there before they began: nothing here needs more. What they add is that the answer to a call may get lost, or that a
call happens long after its caller gave it up (`remote.py`). A driver that writes again knows its own file by its
content, and a call that comes late leaves only what does not count.

**What survives.** A commit and everything it names are flushed to disk (`fsync`) before the commit counts, and so are
the entries of their folders. So committed batches survive `kill -9` and loss of power. Epochs and floors are flushed,
too. Plans, records of trips and the marks under `published/` are not: they survive `kill -9`, which leaves what the
system was asked to write, and after a loss of power may be missing or empty. A plan without a commit has had no effect,
since all that counts comes of commits, so another one is made, beside it: no plan is ever replaced, because tasks read
the plan of their batch themselves. Without its mark a batch is handed to the sinks of the process once more, as after
any crash in that moment. Checkpoints in the temporary directory, of queries that were given none, are not flushed: they
end with their process.

**How many files.** A running query has one epoch, at most two floors, and at most `KEPT` + 4 = 14 commits and as many
plans, because it cleans up after every fourth batch. Of data it has what these commits name, at most one file for each
segment, and what the batches since the last clean-up have left; how many segments there are follows from the rows that
are remembered (`headrace.trace`). However long a query runs, it never has more, but for old commits that readers have
pinned.
"""
