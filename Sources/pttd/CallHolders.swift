// Turns the lists of calls of services and inhibitor locks into holders that come and go. Pure.
import Calls
import PTTBus

/// The calls of several sources. Each source reports its complete list at every change.
struct CallHolders {
    /// A holder that came, or is described differently; or one that is gone, without a description.
    struct Change: Equatable {
        var holder: String
        var description: String?
    }

    private var known: [String: [String: String]] = [:]

    /// The calls of telephone services.
    mutating func update(_ calls: [ActiveCall]) -> [Change] {
        update("service", calls.map { ("\($0.service):\($0.path)", $0.description) })
    }

    /// The inhibitor locks.
    mutating func update(_ inhibitors: [Inhibitor]) -> [Change] {
        update(
            "lock",
            inhibitors.map { ("\($0.processID):\($0.who)", $0.why.isEmpty ? $0.who : "\($0.who): \($0.why)") })
    }

    private mutating func update(_ source: String, _ list: [(key: String, description: String)]) -> [Change] {
        var new: [String: String] = [:]
        for (key, description) in list {
            // Two locks of one program are two calls.
            let number = (0...).first { new["\(source):\(key)#\($0)"] == nil } ?? 0
            new["\(source):\(key)#\(number)"] = description
        }
        let old = known[source] ?? [:]
        known[source] = new
        // What came first, so that the audio is not free in between.
        return new.filter { old[$0.key] != $0.value }.map { Change(holder: $0.key, description: $0.value) }
            .sorted { $0.holder < $1.holder }
            + old.keys.filter { new[$0] == nil }.sorted().map { Change(holder: $0, description: nil) }
    }
}
