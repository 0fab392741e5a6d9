// Which newcomer the user is asked about, and which one an answer is for. Pure.
import MonotonicTime

/// Asks about those who wait to be let into a channel of this machine, one after the other, in the order in which they came.
///
/// A button's key names the newcomer that the user saw. A question that has just appeared may have done so under the pointer: a click on it
/// within `clickGuard` is no answer, and the question comes again.
struct NewcomerQuestions {
    /// A click before that time after the question came on the screen is no answer.
    static let clickGuard = Duration.milliseconds(500)
    /// The time between the end of a question and the next one.
    static let pause = Duration.seconds(1)
    /// How long a question stands when this process is not there any more to take it back: as long as newcomers wait.
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

    /// A button of the notification was clicked, so long after it came on the screen.
    ///
    /// - Returns: Who is to be let in, or not; nil: nobody was meant.
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
