// Tracks how many bytes of answers each caller has not read yet. Pure.
import MonotonicTime

/// What came of asking a caller whether it reads.
enum PingAnswer {
    /// It does: it has read all that was sent before.
    case read
    /// It has left the bus.
    case gone
    /// It cannot be asked.
    case unknown
}

/// Bounds what callers leave unread.
///
/// A bus keeps what a connection does not read and charges it to the sender; when that is too much, it stops reading from the sender. So
/// one caller that never reads could take a service off the bus. D-Bus does not say what has been read. Every caller with
/// `askBytes` is therefore asked by `org.freedesktop.DBus.Peer.Ping`, whose answer comes after it has read what was sent before.
/// Some libraries answer only while they wait for signals, so a little is forgiven with time.
struct AnswerLedger {
    /// Maximum number of unread bytes per caller. Beyond it the caller gets a short error, and then no answer.
    static let callerBytes = 4 * 1024 * 1024
    /// What all callers together may leave unread, in bytes. A dbus-daemon allows 127 MiB.
    static let allBytes = 48 * 1024 * 1024
    /// What each caller may leave unread even then, in bytes.
    static let shareBytes = 64 * 1024
    /// What a caller may leave unread before it is asked, in bytes.
    static let askBytes = 32 * 1024
    /// Bytes of short errors for a caller that has left too much unread.
    static let errorBytes = 64 * 1024
    /// What is forgiven to a caller in a second, in bytes.
    static let forgivenPerSecond = 4 * 1024
    /// Callers that are known; the one that was answered longest ago is forgotten.
    static let callers = 1_024

    /// What to do with an answer.
    enum Verdict: Equatable {
        /// Send it, and then ask the caller if `asks`.
        case send(asks: Bool)
        /// Send a short error instead; the log is told if `tells`.
        case refuse(tells: Bool)
        /// Send nothing; the log is told if `tells`.
        case withhold(tells: Bool)
    }

    private struct Account {
        var unread = 0
        /// What had been sent when the caller was asked; nil while nothing is asked.
        var asked: Int?
        var canBeAsked = true
        var isTold = false
        var changedAt: Instant
    }

    private var accounts: [String: Account] = [:]
    /// What all callers may not have read.
    private(set) var unread = 0

    /// What `caller` may not have read.
    func unread(of caller: String) -> Int { accounts[caller]?.unread ?? 0 }

    /// Decides about an answer of `bytes` bytes to `caller`. An answer that is to be sent counts as sent.
    mutating func answer(_ caller: String, bytes: Int, at now: Instant) -> Verdict {
        var account = settled(caller, at: now)
        defer { accounts[caller] = account }
        let after = account.unread + bytes
        let fits = after <= Self.callerBytes && (unread + bytes <= Self.allBytes || after <= Self.shareBytes)
        guard !fits else {
            add(bytes, to: &account)
            let asks = account.unread >= Self.askBytes && account.asked == nil && account.canBeAsked
            if asks { account.asked = account.unread }
            return .send(asks: asks)
        }
        let tells = !account.isTold
        account.isTold = true
        // The error is about as long as what every message has beside its arguments.
        guard account.unread + Self.overhead <= Self.callerBytes + Self.errorBytes,
            unread + Self.overhead <= Self.allBytes
        else {
            return .withhold(tells: tells)
        }
        add(Self.overhead, to: &account)
        return .refuse(tells: tells)
    }

    /// Bytes of a message in addition to its arguments.
    static let overhead = 256

    /// A caller that was asked has answered, or cannot.
    mutating func answered(_ caller: String, _ answer: PingAnswer) {
        guard var account = accounts[caller] else { return }
        let read: Int
        switch answer {
        case .read: read = min(account.asked ?? 0, account.unread)
        case .gone: read = account.unread
        case .unknown:
            read = 0
            account.canBeAsked = false
        }
        account.asked = nil
        account.unread -= read
        unread -= read
        if account.unread < Self.askBytes { account.isTold = false }
        accounts[caller] = account.unread == 0 && account.canBeAsked ? nil : account
    }

    private mutating func add(_ bytes: Int, to account: inout Account) {
        account.unread += bytes
        unread += bytes
    }

    private mutating func settled(_ caller: String, at now: Instant) -> Account {
        guard var account = accounts[caller] else {
            if accounts.count >= Self.callers,
                let oldest = accounts.min(by: { $0.value.changedAt < $1.value.changedAt })
            {
                unread -= oldest.value.unread
                accounts[oldest.key] = nil
            }
            return Account(changedAt: now)
        }
        let milliseconds = Int((now - account.changedAt).nanoseconds / 1_000_000)
        // Whole bytes only, so that frequent calls are forgiven as much as rare ones.
        let forgiven = min(account.unread, milliseconds * Self.forgivenPerSecond / 1_000)
        account.unread -= forgiven
        account.asked = account.asked.map { max(0, $0 - forgiven) }
        unread -= forgiven
        if milliseconds > 0 { account.changedAt = now }
        return account
    }
}
