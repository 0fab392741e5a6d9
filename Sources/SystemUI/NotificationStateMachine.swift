// One notification at a server that may be absent, slow, restarted, or unwilling. Pure.
import MonotonicTime

/// Keeps at most one notification at the server: a new one replaces the old one.
///
/// A view is sent once. It is not sent again because the server refused it or crashed. Without a server nothing is
/// requested until one appears on the bus.
struct NotificationStateMachine {
    /// What happens.
    enum Event: Sendable {
        /// What there is to show; nil: nothing.
        case wanted(NotificationView?)
        /// The name `org.freedesktop.Notifications` has an owner, or has none any more, or the bus is back.
        case serverChanged
        /// The answer to `askCapabilities`; nil: there is no server.
        case capabilities(Set<String>?, server: Int)
        /// The answer to `notify`: the notification's number; nil: refused.
        case notified(UInt32?, server: Int)
        /// The bus knows nobody to notify.
        case serverUnknown(server: Int)
        /// The server took a notification away, or was asked to.
        case closed(UInt32, reason: UInt32)
        /// A button of a notification.
        case actionInvoked(UInt32, key: String)
        /// `nextDeadline` has come.
        case deadline
    }

    /// What is to be done. `server` comes back with the answer, so that an answer of a server that is gone is known as such.
    enum Action: Hashable, Sendable {
        case askCapabilities(server: Int)
        case notify(NotificationView, capabilities: Set<String>, replacing: UInt32, server: Int)
        case close(UInt32)
        /// The notification was on the screen and is not any more, by no wish of ours, and nothing newer is to be shown.
        case gone
        /// The user clicked the button of that key, `after` the notification appeared.
        case clicked(key: String, after: Duration)
    }

    /// The shortest time between two notifications.
    static let interval = Duration.milliseconds(500)
    /// Why a notification was closed: because we asked (Desktop Notifications Specification, "NotificationClosed").
    private static let closedByCall: UInt32 = 3

    private enum Server: Equatable {
        /// Perhaps there, perhaps to be started by the bus.
        case unknown
        case asked
        case known(Set<String>)
        case absent
    }

    private var server = Server.unknown
    /// Counts servers.
    private var generation = 0
    private var wanted: NotificationView?
    /// The last view that was sent, whatever became of it; nil after it was taken back.
    private var sent: NotificationView?
    /// The notification on the screen, what it shows, and since when.
    private var shown: (number: UInt32, view: NotificationView, since: Instant)?
    private var isSending = false
    private var notBefore: Instant?

    /// When `deadline` must be handled; nil while nothing is pending.
    var nextDeadline: Instant? {
        guard case .known = server, !isSending, wanted != nil, wanted != sent else { return nil }
        return notBefore
    }

    /// Applies an event.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .wanted(let view): wanted = view
        case .serverChanged:
            generation += 1
            server = .unknown
            shown = nil
            isSending = false
        case .capabilities(let capabilities, let asked) where asked == generation:
            server = capabilities.map { .known($0) } ?? .absent
        case .notified(let number, let asked) where asked == generation:
            isSending = false
            if let number, let sent { shown = (number, sent, now) }
        case .serverUnknown(let asked) where asked == generation:
            isSending = false
            server = .absent
            shown = nil
        case .closed(let number, let reason):
            guard let old = shown, old.number == number else { break }
            shown = nil
            // Nobody has seen what is to take its place, if that is about something else.
            if reason != Self.closedByCall, wanted?.continues(old.view) == true { actions.append(.gone) }
        case .actionInvoked(let number, let key):
            guard let shown, shown.number == number, sent?.hasButton(key) == true else { break }
            actions.append(.clicked(key: key, after: now - shown.since))
        case .capabilities, .notified, .serverUnknown, .deadline: break
        }
        return actions + advance(at: now)
    }

    private mutating func advance(at now: Instant) -> [Action] {
        guard !isSending else { return [] }
        guard let wanted else {
            sent = nil
            guard let old = shown else { return [] }
            shown = nil
            return [.close(old.number)]
        }
        guard wanted != sent else { return [] }
        switch server {
        case .absent, .asked: return []
        case .unknown:
            server = .asked
            return [.askCapabilities(server: generation)]
        case .known(let capabilities):
            if let notBefore, now < notBefore { return [] }
            notBefore = now + Self.interval
            sent = wanted
            isSending = true
            return [.notify(wanted, capabilities: capabilities, replacing: shown?.number ?? 0, server: generation)]
        }
    }
}

extension NotificationView {
    fileprivate func hasButton(_ key: String) -> Bool { buttons.contains { $0.key == key } }

    /// Whether this is about what `other` is about: the same, perhaps with another button, or the end of the same speech.
    fileprivate func continues(_ other: NotificationView) -> Bool {
        if case .spoke(let name) = subject, other.subject == .speaking(name) { return true }
        return subject == other.subject
    }
}
