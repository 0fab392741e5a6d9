// An event loop that works for 100 ms or longer in one turn, as the argument says; for the test of the watch that finds blocked turns.
//
//   blocked-turn-probe wait|compute|short|allowed
import Glibc
import MonotonicTime
import Reactor

let kind = CommandLine.arguments.dropFirst().first ?? ""
let loop = try EventLoop(name: "probe", mayWait: kind == "allowed")

// The watch is to see it, also where its thread stands still for a while.
func waitsForNobody() { usleep(kind == "wait" ? 2_000_000 : 100_000) }

loop.runAndWait {
    switch kind {
    case "wait", "allowed": waitsForNobody()
    case "compute":
        let end = Instant.now + .milliseconds(100)
        while Instant.now < end {}
    case "short":
        // Each in a turn of its own.
        for number in 1...20 { loop.schedule(after: .milliseconds(10 * number)) { usleep(2_000) } }
    default: fatalError("usage: blocked-turn-probe wait|compute|short|allowed")
    }
}
usleep(kind == "short" ? 300_000 : 20_000)
loop.stop()
