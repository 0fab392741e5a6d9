// How a service speaks of calls: which signals to hear, what to ask, and what answers and signals mean.
import DBus

/// A method call that asks a service what there is.
struct CallQuestion: Hashable, Sendable {
    var path: DBusObjectPath
    var interface: String
    var method: String
    var arguments: [DBusValue] = []
}

/// A signal of a service, as the rules see it.
struct CallSignal: Hashable, Sendable {
    /// The sender's serial number: it shows whether the signal came before or after an answer.
    var serial: UInt32
    var path: DBusObjectPath
    var interface: String
    var member: String
    var arguments: [DBusValue]
}

/// The meaning of an answer or a signal. A line carries calls: a modem, or a connected phone.
enum CallUpdate: Hashable, Sendable {
    /// Exactly these lines exist.
    case lines([DBusObjectPath])
    /// This line has gone, and its calls have ended.
    case lineGone(DBusObjectPath)
    /// Exactly these calls run over this line.
    case calls(line: DBusObjectPath, [DBusObjectPath: CallFacts])
    /// A call, known or new, on this line.
    case call(DBusObjectPath, line: DBusObjectPath, CallFacts)
    /// Something about a call that is known.
    case changed(DBusObjectPath, CallFacts)
    /// This call is over.
    case ended(DBusObjectPath)
    /// The service has to be asked.
    case ask(CallQuestion)
}

/// One service's way of speaking. Its functions have no memory; what they cannot read they throw.
protocol CallDialect: Sendable {
    /// The signals to hear.
    var rules: [DBusMatchRule] { get }
    /// What is asked when the service appears.
    var opening: CallQuestion { get }
    /// What the answer to a question means.
    func news(answering question: CallQuestion, _ arguments: [DBusValue]) throws(DBusError) -> [CallUpdate]
    /// What a signal means.
    func news(_ signal: CallSignal) throws(DBusError) -> [CallUpdate]
}

extension CallService {
    var dialect: any CallDialect {
        switch self {
        case .ofono: OfonoDialect()
        case .modemManager: ModemManagerDialect()
        case .bluez: BlueZDialect()
        }
    }
}

/// The names of the standard interfaces.
enum StandardInterface {
    static let objectManager = "org.freedesktop.DBus.ObjectManager"
    static let properties = "org.freedesktop.DBus.Properties"
}

/// One property of the given type; nil when it is not among them.
func property<T: DBusConvertible>(
    _ name: String, of properties: [String: DBusValue], as type: T.Type = T.self
) throws(DBusError) -> T? {
    guard let value = properties[name] else { return nil }
    return try value.require()
}

/// The elements of an `a(oa{sv})`.
func objects(_ arguments: [DBusValue]) throws(DBusError) -> [(path: DBusObjectPath, properties: [String: DBusValue])] {
    guard let elements = arguments.first?.arrayValue else {
        throw .unexpectedType(expected: "a(oa{sv})", got: arguments.signature.rawValue)
    }
    var result: [(DBusObjectPath, [String: DBusValue])] = []
    for element in elements {
        guard let fields = element.structureValue, fields.count == 2 else {
            throw .unexpectedType(expected: "(oa{sv})", got: element.type.code)
        }
        result.append((try fields[0].require(), try fields[1].require()))
    }
    return result
}

/// The answer to `GetManagedObjects`, and the content of `InterfacesAdded` for one object.
typealias ManagedObjects = [DBusObjectPath: [String: [String: DBusValue]]]
