// A phone call as push-to-talk sees it: the service that reports it, its state, and the other party.
import DBus

/// A service on the system bus that reports phone calls.
public enum CallService: String, CaseIterable, Hashable, Sendable, Comparable {
    /// oFono: modems, and phones whose calls it carries.
    case ofono = "oFono"
    /// ModemManager: modems.
    case modemManager = "ModemManager"
    /// BlueZ, where it has `org.bluez.Call1` (since 2025, with `--experimental`): the calls of a connected phone.
    case bluez = "Bluetooth"

    /// Its well-known bus name.
    public var busName: String {
        switch self {
        case .ofono: "org.ofono"
        case .modemManager: "org.freedesktop.ModemManager1"
        case .bluez: "org.bluez"
        }
    }

    /// The order in which calls are listed.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
}

/// How far a call has got: 3GPP TS 27.007's call states, which all three services use under their own names.
public enum CallState: Hashable, Sendable, CaseIterable {
    /// The user has dialled; nothing is heard yet.
    case dialing
    /// It rings at the other end.
    case alerting
    /// It rings here.
    case incoming
    /// It knocks during another call.
    case waiting
    /// They talk.
    case active
    /// One side has put it on hold.
    case held
    /// Not begun, or over.
    case over

    /// Whether the user is in this call, so that it has the microphone and the speaker instead of push-to-talk.
    ///
    /// True from dialling to hanging up, on hold too: the other end waits, and the call's sound may come back at any moment.
    /// False while it only rings or knocks here: nobody has answered, and a ring must not cut a transmission off. That is
    /// when Apple's systems hand the audio over, too: when a call is answered or placed.
    public var isInProgress: Bool {
        switch self {
        case .dialing, .alerting, .active, .held: true
        case .incoming, .waiting, .over: false
        }
    }
}

/// A call that the user is in.
public struct ActiveCall: Hashable, Sendable, CustomStringConvertible {
    /// The service that reports it.
    public let service: CallService
    /// Its object at that service.
    public let path: DBusObjectPath
    /// How far it has got; `isInProgress` is true.
    public let state: CallState
    /// The other party's name and number if the network reports them, else "a call".
    public let who: String

    /// For users: "oFono: Anna (+49 30 1234)".
    public var description: String { "\(service.rawValue): \(who)" }
}

/// What a message said about a call. What it did not say is nil.
struct CallFacts: Hashable, Sendable {
    var state: CallState?
    var number: String?
    var name: String?

    /// The longest name or number kept, in characters: no network has longer ones.
    static let textMaximum = 64

    mutating func merge(_ other: CallFacts) {
        if let state = other.state { self.state = state }
        if let number = other.number { self.number = number }
        if let name = other.name { self.name = name }
    }

    /// The other party, as text for the user.
    var who: String {
        let name = Self.printable(name), number = Self.printable(number)
        // oFono's and BlueZ's word for a caller who does not want to be known.
        if number == "withheld" { return name.isEmpty ? "a withheld number" : name }
        switch (name.isEmpty, number.isEmpty) {
        case (true, true): return "a call"
        case (true, false): return number
        case (false, true): return name
        case (false, false): return name == number ? name : "\(name) (\(number))"
        }
    }

    /// The text without what a terminal or a notification would take for a command, and not endless.
    private static func printable(_ text: String?) -> String {
        let kept = (text ?? "").unicodeScalars.filter {
            switch $0.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: false
            default: true
            }
        }
        var result = String(String.UnicodeScalarView(kept)).prefix(textMaximum)
        while result.first == " " { result.removeFirst() }
        while result.last == " " { result.removeLast() }
        return String(result)
    }
}
