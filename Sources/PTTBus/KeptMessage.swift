// A message that a relay keeps, on the bus.
import DBus

/// A message of a channel that the relay keeps, as in the answer to `org.pttd.Channel1.ListMessages`.
public struct KeptMessage: Hashable, Sendable, Codable {
    /// Names it in `ReplayMessage`.
    public var id: String
    /// The talker.
    public var talker: String
    /// When it began, in milliseconds since 1970 UTC.
    public var beganAt: Int64
    /// Its duration in milliseconds, or its duration so far while it is in progress.
    public var milliseconds: UInt32
    /// Whether its talker still speaks.
    public var isGoingOn: Bool
    /// Whether this device said it.
    public var isOwn: Bool
    /// Whether this device has the key that it is sealed with.
    public var canBeOpened: Bool

    /// The most bytes of an `id`.
    public static let idBytes = 64

    /// A message.
    public init(
        id: String, talker: String, beganAt: Int64, milliseconds: UInt32, isGoingOn: Bool = false, isOwn: Bool = false,
        canBeOpened: Bool = true
    ) {
        self.id = id
        self.talker = talker
        self.beganAt = beganAt
        self.milliseconds = milliseconds
        self.isGoingOn = isGoingOn
        self.isOwn = isOwn
        self.canBeOpened = canBeOpened
    }

    // MARK: The bus

    /// The D-Bus type of a list of them.
    public static let listCode = "a(ssxubbb)"

    private static let element = DBusType.structure([.string, .string, .int64, .uint32, .boolean, .boolean, .boolean])

    /// Them as an argument.
    public static func list(_ messages: [KeptMessage]) -> DBusValue {
        .array(
            element,
            messages.map {
                .structure([
                    .string($0.id), .string($0.talker), .int64($0.beganAt), .uint32($0.milliseconds),
                    .boolean($0.isGoingOn), .boolean($0.isOwn), .boolean($0.canBeOpened),
                ])
            })
    }

    /// The messages in an argument; nil when it is of another type.
    public static func list(_ value: DBusValue) -> [KeptMessage]? {
        guard case .array(element, let values) = value else { return nil }
        var messages: [KeptMessage] = []
        for value in values {
            guard let message = KeptMessage(value) else { return nil }
            messages.append(message)
        }
        return messages
    }

    private init?(_ value: DBusValue) {
        guard case .structure(let fields) = value, fields.count == 7, case .string(let id) = fields[0],
            case .string(let talker) = fields[1], case .int64(let beganAt) = fields[2],
            case .uint32(let milliseconds) = fields[3], case .boolean(let isGoingOn) = fields[4],
            case .boolean(let isOwn) = fields[5], case .boolean(let canBeOpened) = fields[6]
        else { return nil }
        self.init(
            id: id, talker: talker, beganAt: beganAt, milliseconds: milliseconds, isGoingOn: isGoingOn, isOwn: isOwn,
            canBeOpened: canBeOpened)
    }
}
