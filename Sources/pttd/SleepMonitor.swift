// The machine's sleep, as logind announces it.
import DBus

/// Tells when the machine is about to sleep and when it woke, by `PrepareForSleep` of `org.freedesktop.login1.Manager`.
enum SleepMonitor {
    /// Calls `handler` on the bus's loop: true before sleep, false after waking. Without logind it is never called.
    ///
    /// - Throws: `DBusError` when the bus refuses the match.
    static func follow(_ bus: DBusConnection, _ handler: @escaping @Sendable (Bool) -> Void) async throws(DBusError) {
        let rule = DBusMatchRule(
            sender: "org.freedesktop.login1", path: "/org/freedesktop/login1",
            interface: "org.freedesktop.login1.Manager", member: "PrepareForSleep")
        try await bus.addMatch(rule) { message in
            guard let isComing = message.arguments.first?.boolValue else { return }
            handler(isComing)
        }
    }
}
