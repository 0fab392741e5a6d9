// Checks of callers' arguments. An error names the problem and a valid form.
import DBus
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Vocabulary

/// Reads the arguments of one call of `org.pttd`. Everything throws `InvalidArgs`.
struct Arguments {
    private let values: [DBusValue]

    /// The arguments of a call, which the module DBus has found to be of the declared types.
    init(_ call: DBusMethodCall) { values = call.arguments }

    func value<T: DBusConvertible>(_ index: Int) throws(DBusErrorReply) -> T {
        do throws(DBusError) {
            return try values.argument(index)
        } catch {
            throw .invalidArguments("argument \(index + 1): \(error)")
        }
    }

    /// The UUID in argument `index`; nil for an empty one.
    func optionalUUID(_ index: Int) throws(DBusErrorReply) -> UUID? {
        let text: String = try value(index)
        guard !text.isEmpty else { return nil }
        guard let uuid = UUID(uuidString: text) else {
            throw .invalidArguments(
                "'\(DBusName.shown(text))' is not a UUID; write it like 127face1-cb21-11e5-93d0-0002a5d5c51b")
        }
        return uuid
    }

    func uuid(_ index: Int) throws(DBusErrorReply) -> UUID {
        guard let uuid = try optionalUUID(index) else {
            throw .invalidArguments("the UUID is empty; write it like 127face1-cb21-11e5-93d0-0002a5d5c51b")
        }
        return uuid
    }

    /// Text for people in argument `index`.
    func text(_ index: Int, _ name: String, bytes: ClosedRange<Int>) throws(DBusErrorReply) -> String {
        try Self.check(try value(index), name, bytes: bytes)
    }

    static func check(
        _ text: String, _ name: String, bytes: ClosedRange<Int>
    ) throws(DBusErrorReply) -> String {
        guard bytes.contains(text.utf8.count) else {
            throw text.isEmpty
                ? .invalidArguments("'\(name)' is empty")
                : .invalidArguments("'\(name)' has \(text.utf8.count) bytes; at most \(bytes.upperBound) are accepted")
        }
        guard !text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) else {
            throw .invalidArguments("'\(name)' has control characters; give plain text")
        }
        return text
    }

    /// One of the names in `choices`, in argument `index`.
    func choice<T>(
        _ index: Int, _ name: String, _ choices: [T], _ spelling: (T) -> String
    ) throws(DBusErrorReply) -> T {
        try Self.choice(try value(index), name, choices, spelling)
    }

    static func choice<T>(
        _ text: String, _ name: String, _ choices: [T], _ spelling: (T) -> String
    ) throws(DBusErrorReply) -> T {
        guard let choice = choices.first(where: { spelling($0) == text }) else {
            let known = choices.map { "'\(spelling($0))'" }.joined(separator: ", ")
            throw .invalidArguments("'\(name)' is '\(DBusName.shown(text))'; it can be \(known)")
        }
        return choice
    }

    /// A JSON object, in argument `index`.
    func payload(_ index: Int) throws(DBusErrorReply) -> String {
        let text: String = try value(index)
        guard text.utf8.count <= PTTBusLimits.payloadBytes else {
            throw .invalidArguments(
                "the payload has \(text.utf8.count) bytes; at most \(PTTBusLimits.payloadBytes) are accepted")
        }
        guard (try? PushPayload(validating: text)) != nil else {
            throw .invalidArguments("the payload is not a JSON object; write it like {\"activeSpeaker\": \"Jane\"}")
        }
        return text
    }

    // MARK: Options

    /// The options that `JoinChannel` knows.
    struct JoinOptions {
        var image: PTImage?
        var link: String?
        var media: ChannelMedia?
    }

    func joinOptions(_ index: Int) throws(DBusErrorReply) -> JoinOptions {
        let options = try options(index, known: ["Image", "Link", "Media"])
        var result = JoinOptions(image: try Self.image(options))
        if let value = options["Link"] {
            result.link = try Self.check(
                try Self.string(value, "Link"), "Link", bytes: 1...PTTBusLimits.linkBytes)
        }
        if let value = options["Media"] {
            result.media = try Self.choice(try Self.string(value, "Media"), "Media", ChannelMedia.allCases) {
                $0.rawValue
            }
        }
        return result
    }

    /// The image that the options in argument `index` give, and nothing else.
    func image(_ index: Int) throws(DBusErrorReply) -> PTImage? { try Self.image(try options(index, known: ["Image"])) }

    /// The options in argument `index`; a key that is not known would be meant to do something, and is refused.
    func options(_ index: Int, known: [String]) throws(DBusErrorReply) -> [String: DBusValue] {
        let options: [String: DBusValue] = try value(index)
        if let stranger = options.keys.sorted().first(where: { !known.contains($0) }) {
            let words =
                known.isEmpty
                ? "there are none" : "there are " + known.map { "'\($0)'" }.joined(separator: ", ")
            throw .invalidArguments("unknown option '\(DBusName.shown(stranger))'; \(words)")
        }
        return options
    }

    private static func image(_ options: [String: DBusValue]) throws(DBusErrorReply) -> PTImage? {
        guard let value = options["Image"] else { return nil }
        return try PTImage(busValue: value)
    }

    static func string(_ value: DBusValue, _ name: String) throws(DBusErrorReply) -> String {
        guard case .string(let text) = value else {
            throw .invalidArguments("option '\(name)' is of type '\(value.type)'; give 's'")
        }
        return text
    }

    // MARK: Channels nearby

    /// How somebody gets into the channel that `CreateChannel` creates, by the options in argument `index`.
    func admission(_ index: Int) throws(DBusErrorReply) -> NearbyAdmission {
        guard let value = try options(index, known: ["Admission"])["Admission"] else { return .open }
        return try Self.choice(
            try Self.string(value, "Admission"), "Admission", NearbyAdmission.allCases, \.rawValue)
    }

    /// The code that the options in argument `index` give; nil: none.
    func nearbyCode(_ index: Int) throws(DBusErrorReply) -> String? {
        guard let value = try options(index, known: ["Code"])["Code"] else { return nil }
        return try Self.check(try Self.string(value, "Code"), "Code", bytes: 1...PTTBusLimits.nearbyCodeBytes)
    }

    // MARK: Accessories

    /// A Bluetooth address in argument `index`, in capitals; nil for an empty one.
    func optionalBluetoothAddress(_ index: Int) throws(DBusErrorReply) -> String? {
        let text: String = try value(index)
        guard !text.isEmpty else { return nil }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard text.utf8.count == 17, parts.count == 6,
            parts.allSatisfy({ $0.utf8.count == 2 && $0.allSatisfy(\.isHexDigit) })
        else {
            throw .invalidArguments(
                "'\(DBusName.shown(text))' is not a Bluetooth address; write it like 00:11:22:33:44:55, as 'pttctl accessory scan' shows it"
            )
        }
        return text.uppercased()
    }

    func bluetoothAddress(_ index: Int) throws(DBusErrorReply) -> String {
        guard let address = try optionalBluetoothAddress(index) else {
            throw .invalidArguments("the address is empty; write it like 00:11:22:33:44:55")
        }
        return address
    }

    /// What `AddAccessory` asks for.
    func addition() throws(DBusErrorReply) -> AccessoryAddition {
        let options = try options(1, known: ["Name", "Profile", "Gesture", "BondedOnly", "Pair"])
        var result = AccessoryAddition(address: try bluetoothAddress(0))
        result.name = try Self.optionalName(options, "Name")
        result.profileID = try Self.optionalName(options, "Profile")
        if let value = options["Gesture"] {
            result.gesture = try Self.choice(try Self.string(value, "Gesture"), "Gesture", Gesture.choices, \.rawValue)
        }
        if let value = options["BondedOnly"] { result.isBondedOnly = try Self.boolean(value, "BondedOnly") }
        if let value = options["Pair"] { result.pairs = try Self.boolean(value, "Pair") }
        if result.isBondedOnly, result.pairs == false {
            throw .invalidArguments("'BondedOnly' needs 'Pair': pairing makes the bond")
        }
        return result
    }

    /// What `StartLearning` asks for.
    func learningRequest() throws(DBusErrorReply) -> LearningRequest {
        let options = try options(1, known: ["Name", "Add"])
        return LearningRequest(
            address: try optionalBluetoothAddress(0), name: try Self.optionalName(options, "Name"),
            addsAccessory: try options["Add"].map { value throws(DBusErrorReply) in
                try Self.boolean(value, "Add")
            } ?? true)
    }

    private static func optionalName(
        _ options: [String: DBusValue], _ key: String
    ) throws(DBusErrorReply) -> String? {
        guard let value = options[key] else { return nil }
        return try check(try string(value, key), key, bytes: 1...PTTBusLimits.accessoryNameBytes)
    }

    private static func boolean(_ value: DBusValue, _ name: String) throws(DBusErrorReply) -> Bool {
        guard case .boolean(let flag) = value else {
            throw .invalidArguments("option '\(name)' is of type '\(value.type)'; give 'b'")
        }
        return flag
    }
}
