// What people added, bound and taught over D-Bus, in files of pttd's own. An accessory of pttd.toml keeps its place before an added one
// of its name or address; what was changed of it counts over what pttd.toml says.
import Accessories
import Files
import Settings
import Vocabulary

/// What a start finds: the settings of pttd.toml and what pttd keeps for itself, together.
public struct RestoredAccessories: Sendable {
    /// The accessories to begin with.
    public var settings: AccessorySettings
    /// What was wrong and what to do about it, for the log.
    public var problems: [String] = []
    /// What the file says, also of accessories that pttd.toml has.
    var contents = AccessoryStore.Contents()
    /// The accessories of pttd.toml, as that has them.
    var configured: [AccessoryID: AccessoryConfiguration] = [:]

    /// Settings to which nothing is added.
    init(settings: AccessorySettings) { self.settings = settings }
}

/// The accessories, changes and profiles that pttd keeps for itself, in its state directory.
///
/// `accessories.toml` has tables `[accessory.NAME]` as pttd.toml has, and `[change.NAME]` with what was changed of an accessory of
/// pttd.toml; `profiles.d` has the learned profiles. Every call waits for the disk: call it when a person asks, never at a press.
public struct AccessoryStore: Sendable {
    /// What was changed of an accessory of the configuration; nil: as that says.
    struct Change: Equatable, Sendable {
        var gesture: Gesture?
        var isBondedOnly: Bool?
        var bindings: [Control: ControlAction] = [:]
        /// What it was taught; only where pttd.toml names no profile.
        var profileID: String?

        var isEmpty: Bool { self == Change() }

        /// The accessory with the change.
        func applied(to configuration: AccessoryConfiguration) -> AccessoryConfiguration {
            var result = configuration
            result.gesture = gesture ?? result.gesture
            result.isBondedOnly = isBondedOnly ?? result.isBondedOnly
            result.bindings.merge(bindings) { _, new in new }
            result.profileID = result.profileID ?? profileID
            return result
        }
    }

    /// What the file says.
    struct Contents: Equatable, Sendable {
        /// As people added and changed them. `AccessoryConfiguration.used` makes of each what the service is to use.
        var accessories: [AccessoryConfiguration] = []
        var changes: [AccessoryID: Change] = [:]
    }

    /// The state directory, which is there.
    let directory: String

    /// Whether files that cannot be used are set aside, or only told.
    let setsAside: Bool

    /// The store in the state directory `directory`.
    ///
    /// - Parameter setsAside: Whether reading sets files aside that cannot be used; else it changes nothing.
    public init(directory: String, setsAside: Bool = true) {
        self.directory = directory
        self.setsAside = setsAside
    }

    var path: String { directory + "/accessories.toml" }

    /// Where learned profiles are.
    public var profilesDirectory: String { directory + "/profiles.d" }

    // MARK: Reading

    /// Adds what is kept to the settings of pttd.toml. A file that cannot be used is set aside, and the start goes on without it.
    public func restore(_ settings: AccessorySettings) -> RestoredAccessories {
        var restored = RestoredAccessories(settings: settings)
        restored.problems = readProfiles(into: &restored.settings.library)
        let (contents, problem) = load(allowsCommands: settings.allowsCommands)
        if let problem { restored.problems.append(problem) }
        restored.contents = contents
        for accessory in settings.accessories { restored.configured[accessory.id] = accessory }
        restored.settings.accessories = settings.accessories.map {
            contents.changes[$0.id]?.applied(to: $0) ?? $0
        }
        for accessory in contents.accessories {
            // pttd.toml has the last word, about names and about devices.
            let isTaken = settings.accessories.contains {
                $0.id == accessory.id || ($0.address != nil && $0.address == accessory.address)
            }
            if isTaken {
                restored.problems.append("accessory '\(accessory.id)' of \(path) is not used: pttd.toml has it")
            } else {
                restored.settings.accessories.append(accessory.used(isBondedOnly: settings.isBondedOnly))
            }
        }
        return restored
    }

    func load(allowsCommands: Bool = false) -> (contents: Contents, problem: String?) {
        do throws(SettingsError) {
            let contents = try SettingsFile.read(path: path) { root in
                var contents = Contents()
                let count = AccessorySettings.accessoriesMax
                for (name, table) in root.namedTables("accessory", countMax: count) {
                    contents.accessories.append(Self.accessory(name, table, allowsCommands: allowsCommands))
                }
                for (name, table) in root.namedTables("change", countMax: count) {
                    contents.changes[AccessoryID(name)] = Change(settings: table, allowsCommands: allowsCommands)
                }
                return contents
            }
            return (contents, nil)
        } catch {
            if error.isMissingFile { return (Contents(), nil) }
            return (Contents(), setAside(path, why: error, "add the accessories again"))
        }
    }

    /// Whether its profile is there is not asked here: without it the accessory says so, and the others are not lost.
    private static func accessory(
        _ name: String, _ table: SettingsTable, allowsCommands: Bool
    ) -> AccessoryConfiguration {
        let change = Change(settings: table, allowsCommands: allowsCommands)
        return AccessoryConfiguration(
            id: AccessoryID(name), address: table.optional("address", .bluetoothAddress),
            name: table.optional("name", .namePattern), profileID: change.profileID,
            gesture: change.gesture, bindings: change.bindings, isBondedOnly: change.isBondedOnly ?? false)
    }

    private func readProfiles(into library: inout ProfileLibrary) -> [String] {
        // The administrator's own file of the same id was written by a person.
        library.add(filesIn: profilesDirectory, keepsOwn: true).leftOut.map { file, error in
            setAside(file, why: error, "learn the button again")
        }
    }

    /// A file that may be whole, but cannot be read now, stays where it is.
    private func setAside(_ path: String, why: SettingsError, _ advice: String) -> String {
        guard setsAside, why.isDamage else { return "\(path) is not used: \(why). Mend it, or remove it and \(advice)" }
        do throws(FileError) {
            let aside = try AtomicFile.setAside(path)
            return "\(path) is not used: \(why). It was set aside as \(aside); mend it and move it back, or \(advice)"
        } catch {
            return "\(path) is not used: \(why). It could not be set aside (\(error)); remove it, and \(advice)"
        }
    }

    // MARK: Writing

    func save(_ contents: Contents) throws(FileError) {
        var text = """
            # Accessories that were added, and changes of those of pttd.toml, by org.pttd (pttctl accessory add, bind …).
            # pttd writes this file anew at each of them. An accessory of pttd.toml comes before one here of its name or address.

            """
        for accessory in contents.accessories {
            text += "\n[accessory.\(quoted(accessory.id.text))]\n"
            if let address = accessory.address { text += "address = \(quoted(address))\n" }
            if let name = accessory.name { text += "name = \(quoted(name.text))\n" }
            write(Change(accessory), "accessory", accessory.id, &text)
        }
        for (id, change) in contents.changes.sorted(by: { $0.key < $1.key }) where !change.isEmpty {
            text += "\n[change.\(quoted(id.text))]\n"
            write(change, "change", id, &text)
        }
        try AtomicFile.write(Array(text.utf8), to: path)
    }

    private func write(_ change: Change, _ table: String, _ id: AccessoryID, _ text: inout String) {
        if let profile = change.profileID { text += "profile = \(quoted(profile))\n" }
        if let gesture = change.gesture { text += "gesture = \(quoted(gesture.rawValue))\n" }
        if let isBondedOnly = change.isBondedOnly { text += "bonded-only = \(isBondedOnly)\n" }
        guard !change.bindings.isEmpty else { return }
        text += "\n[\(table).\(quoted(id.text)).bind]\n"
        for (control, action) in change.bindings.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            text += "\(quoted(control.rawValue)) = \(quoted(action.text))\n"
        }
    }

    /// Keeps a learned profile.
    ///
    /// - Returns: Its file.
    func save(_ profile: AccessoryProfile) throws(FileError) -> String {
        try AtomicFile.makeDirectory(profilesDirectory)
        let file = "\(profilesDirectory)/\(profile.id).toml"
        try AtomicFile.write(Array(profile.text.utf8), to: file)
        return file
    }
}

extension AccessoryStore.Change {
    /// What may be changed of an accessory, as it is.
    init(_ accessory: AccessoryConfiguration) {
        gesture = accessory.gesture
        // A file of an earlier version says "false" of each accessory of which nobody has said anything.
        isBondedOnly = accessory.isBondedOnly ? true : nil
        bindings = accessory.bindings
        profileID = accessory.profileID
    }

    /// - Parameter allowsCommands: Only a user's own daemon runs commands; others leave them out.
    fileprivate init(settings table: SettingsTable, allowsCommands: Bool) {
        gesture = table.optional("gesture", .oneOf([("hold", .hold), ("toggle", .toggle), ("hybrid", .hybrid)]))
        isBondedOnly = table.optional("bonded-only", .boolean)
        profileID = table.optional("profile", .profileID)
        guard let bind = table.table("bind") else { return }
        for control in Control.allCases {
            guard let words = bind.optional(control.rawValue, .string(lengthMax: ControlAction.textMax)) else {
                continue
            }
            guard let action = ControlAction(words) else {
                bind.problem(control.rawValue, "\"\(words)\" is not an action", "bind it again: pttctl accessory bind")
                continue
            }
            if case .command = action, !allowsCommands { continue }
            bindings[control] = action
        }
    }
}

extension AccessoryConfiguration {
    /// An accessory that was added, as it is used.
    ///
    /// - Parameter isBondedOnly: Whether pttd.toml asks for a bond of all accessories. Who adds one cannot exempt it from that.
    func used(isBondedOnly: Bool) -> AccessoryConfiguration {
        var result = self
        result.isBondedOnly = result.isBondedOnly || isBondedOnly
        return result
    }
}
