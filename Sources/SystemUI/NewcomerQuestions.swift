// Chooses the newcomer that the user is asked about, and assigns answers to newcomers. Pure.
import MonotonicTime

/// Asks about the people who wait to be admitted to a channel of this machine, one after the other, in the order of
/// their requests.
///
/// A button's key identifies the newcomer that the user saw. A question may have appeared under the pointer just before
/// a click: a click within `clickGuard` is ignored, and the question is shown again.
struct NewcomerQuestions {
    /// A click is ignored for this time after the question appeared.
    static let clickGuard = Duration.milliseconds(500)
    /// The time between the end of a question and the next one.
    static let pause = Duration.seconds(1)
    /// How long a question stays if this process ends and cannot withdraw it: as long as newcomers wait.
    static let lifetime = Duration.seconds(60)

    private struct Waiting {
        let newcomer: SystemUINearby.Newcomer
        let serial: Int
        /// It is answered, or the user has put the question away.
        var isSettled = false
    }

    private var waiting: [Waiting] = []
    private var nextSerial = 1
    private var asked: Int?
    private var notBefore: Instant?

    /// The question that is on the screen, or is to be there.
    private(set) var view: NotificationView?

    /// When `pass` must be called; nil while nothing is pending.
    var nextDeadline: Instant? {
        asked == nil && waiting.contains { !$0.isSettled } ? notBefore : nil
    }

    /// Those who wait now.
    mutating func update(_ newcomers: [SystemUINearby.Newcomer], at now: Instant) {
        waiting = newcomers.map { newcomer in
            if let known = waiting.first(where: { $0.newcomer == newcomer }) { return known }
            defer { nextSerial += 1 }
            return Waiting(newcomer: newcomer, serial: nextSerial)
        }
        if let asked, !waiting.contains(where: { $0.serial == asked }) { endQuestion(at: now) }
        ask(at: now)
    }

    /// A button of the notification was clicked, `shown` after it appeared.
    ///
    /// - Returns: The newcomer and the answer; nil: the click is ignored.
    mutating func clicked(_ key: String, after shown: Duration, at now: Instant) -> (id: String, isAdmitted: Bool)? {
        guard let index = waiting.firstIndex(where: { $0.serial == asked && !$0.isSettled }) else { return nil }
        let serial = waiting[index].serial
        guard key == Self.key(serial, isAdmitted: true) || key == Self.key(serial, isAdmitted: false) else {
            return nil
        }
        // Servers take a notification away that was clicked.
        endQuestion(at: now)
        guard shown >= Self.clickGuard else { return nil }
        waiting[index].isSettled = true
        return (waiting[index].newcomer.id, key == Self.key(serial, isAdmitted: true))
    }

    /// The user, or the server's own clock, took the question away: the command remains.
    mutating func dismissed(at now: Instant) {
        guard let index = waiting.firstIndex(where: { $0.serial == asked }) else { return }
        waiting[index].isSettled = true
        endQuestion(at: now)
    }

    /// Time has passed.
    mutating func pass(to now: Instant) { ask(at: now) }

    private mutating func endQuestion(at now: Instant) {
        asked = nil
        view = nil
        notBefore = now + Self.pause
    }

    private mutating func ask(at now: Instant) {
        guard asked == nil, notBefore.map({ $0 <= now }) ?? true, let next = waiting.first(where: { !$0.isSettled })
        else { return }
        asked = next.serial
        func line(_ text: String, _ fallback: String) -> String {
            DisplayText.line(text, fallback: fallback, limit: NearbySubmenu.nameMax)
        }
        view = NotificationView(
            subject: .newcomer(line(next.newcomer.name, "Somebody")),
            channelName: line(next.newcomer.channelName, "Channel without a name"), image: nil,
            buttons: [
                .init(key: Self.key(next.serial, isAdmitted: true), label: "Admit"),
                .init(key: Self.key(next.serial, isAdmitted: false), label: "Refuse"),
            ],
            lifetime: Self.lifetime)
    }

    private static func key(_ serial: Int, isAdmitted: Bool) -> String {
        "\(isAdmitted ? "admit" : "refuse")-\(serial)"
    }
}
