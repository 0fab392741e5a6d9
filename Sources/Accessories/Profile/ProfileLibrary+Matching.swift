// Which profile a device has. Marks are shared by many families, so the one that says most about the device is meant.
import BlueZ

extension ProfileLibrary {
    /// The profile of a device whose characteristics are known; nil also when its family is refused.
    ///
    /// - Parameters:
    ///   - names: All names the device has gone by; some devices lose theirs once connected.
    ///   - has: Whether the device has a characteristic in a service.
    public func profile(
        names: some Sequence<String>, has: (_ service: BluetoothUUID, _ characteristic: BluetoothUUID) -> Bool
    ) -> AccessoryProfile? {
        let names = names.map(NamePattern.fold)
        let found = best { profile in
            guard profile.transport == .gatt, profile.isComplete(has: has) else { return nil }
            if let specificity = profile.specificity(of: names) { return (1, specificity) }
            return profile.serviceIdentifies && !profile.inputs.isEmpty ? (0, 0) : nil
        }
        return found?.refusal == nil ? found : nil
    }

    /// As `probable`; nil also when its family is refused.
    public func candidate(name: String?, services: some Collection<BluetoothUUID>) -> AccessoryProfile? {
        let found = probable(name: name, services: services)
        return found?.refusal == nil ? found : nil
    }

    private static let hidOverGATT: BluetoothUUID = "1812"
    private static let humanInterfaceDevice: BluetoothUUID = "1124"

    /// Whether a Bluetooth device may become an accessory without being configured. Input devices are given to us by udev rules alone.
    /// What is refused is taken in order to say why.
    func takesUnasked(_ facts: DeviceFacts) -> Bool {
        probable(name: facts.name, services: facts.services) != nil
    }

    /// The profile that a device probably has, from what it advertises; to be verified once it is connected. If its family is refused,
    /// the profile's `refusal` says why.
    public func probable(name: String?, services: some Collection<BluetoothUUID>) -> AccessoryProfile? {
        let names = name.map { [NamePattern.fold($0)] } ?? []
        // A remote control may be called "PTT": what is a keyboard to the system says its own service, or is none of these.
        let isInputDevice = services.contains { $0 == Self.hidOverGATT || $0 == Self.humanInterfaceDevice }
        return best { profile in
            guard profile.transport != .input, profile.transport != .serial else { return nil }
            let offers = profile.isOffered(in: services)
            guard offers || !isInputDevice else { return nil }
            if let specificity = profile.specificity(of: names) { return (offers ? 2 : 1, specificity) }
            return profile.serviceIdentifies && offers ? (0, 0) : nil
        }
    }

    /// The profile of an input device or a serial port: the one that its udev rule names, else the one that fits best.
    func candidate(local: LocalDeviceFacts) -> AccessoryProfile? {
        let transport: AccessoryProfile.Transport = local.isSerialPort ? .serial : .input
        if let id = local.profileID { return self[id].flatMap { $0.transport == transport ? $0 : nil } }
        let names = [NamePattern.fold(local.name)]
        return best { profile in
            guard profile.transport == transport, profile.refusal == nil, profile.hasTalkKey(among: local.keys) else {
                return nil
            }
            let properties = profile.udevProperties
            let hasProperties = properties.allSatisfy { name, pattern in
                local.properties[name].map { NamePattern(pattern).matches($0) } ?? false
            }
            guard hasProperties else { return nil }
            let isListed = local.device.map { profile.inputDevices.contains($0) } ?? false
            let specificity = profile.specificity(of: names)
            let evidence = [isListed, specificity != nil, !properties.isEmpty].count { $0 }
            // Of a profile that lists names or devices one has to fit; properties are a further condition.
            guard isListed || specificity != nil || (profile.names.isEmpty && profile.inputDevices.isEmpty),
                evidence > 0
            else { return nil }
            return (evidence, specificity ?? 0)
        }
    }

    /// The profile by which a local device of an accessory is read.
    ///
    /// - Throws: What is missing, and what to do.
    func profile(
        of local: LocalDeviceFacts, _ configuration: AccessoryConfiguration
    ) throws(UnfittingDevice) -> AccessoryProfile {
        let transport: AccessoryProfile.Transport = local.isSerialPort ? .serial : .input
        let fitting = profiles.filter { $0.transport == transport }.map(\.id).joined(separator: ", ")
        if let id = local.profileID ?? configuration.profileID {
            let place =
                local.profileID != nil
                ? "ENV{PTTD_PROFILE} in its udev rule" : "profile in [accessory.\"\(configuration.id)\"]"
            guard let profile = self[id] else {
                throw UnfittingDevice(problem: "there is no profile \"\(id)\": correct \(place) (\(fitting))")
            }
            guard profile.transport == transport, !profile.inputs.isEmpty else {
                let what = local.isSerialPort ? "a serial port" : "an input device"
                throw UnfittingDevice(
                    problem: "profile \"\(id)\" is not one of \(what): correct \(place) (\(fitting))")
            }
            return profile
        }
        if let profile = candidate(local: local) { return profile }
        throw UnfittingDevice(
            problem: local.id == .mediaPlayer
                ? "no profile fits the play keys: write profile = \"…\" in [accessory.media-player] (\(fitting))"
                : "no profile fits \"\(local.name)\": write ENV{PTTD_PROFILE}=\"…\" in its udev rule (\(fitting)), "
                    + "or learn it with 'pttctl accessory learn'")
    }

    /// The profile for which `fit` says most; explicit ones are not asked.
    ///
    /// - Parameter fit: Evidence: 2 is a name, and a service with it; 1 a name, or a device's numbers; 0 the service alone. Specificity:
    ///   how much the name's pattern says.
    private func best(_ fit: (AccessoryProfile) -> (evidence: Int, specificity: Int)?) -> AccessoryProfile? {
        var best: (profile: AccessoryProfile, fit: (Int, Int, Int, Int))?
        for profile in profiles where !profile.isExplicitOnly {
            guard let (evidence, specificity) = fit(profile) else { continue }
            // The site's own profiles come before the shipped ones, and BLE before classic, which such devices offer besides.
            let transport = AccessoryProfile.Transport.allCases.firstIndex(of: profile.transport) ?? 0
            let fit = (siteIDs.contains(profile.id) ? 1 : 0, evidence, specificity, -transport)
            if best.map({ $0.fit < fit }) ?? true { best = (profile, fit) }
        }
        return best?.profile
    }
}

/// A local device cannot be read by any profile, or not by the one that is named.
struct UnfittingDevice: Error {
    var problem: String
}

extension AccessoryProfile {
    /// How much the pattern says that fits any of the names best; nil when none fits.
    fileprivate func specificity(of folded: [[Unicode.Scalar]]) -> Int? {
        names.lazy.filter { pattern in folded.contains { pattern.matches(folded: $0) } }.map(\.specificity).max()
    }

    /// Whether a device with these services offers what this profile speaks.
    fileprivate func isOffered(in services: some Collection<BluetoothUUID>) -> Bool {
        switch transport {
        case .gatt:
            services.contains { advertisedServices.contains($0) || self.services.contains($0) }
        case .spp: services.contains(BluetoothUUID("1101"))
        case .handsFree: services.contains(BluetoothUUID("111e")) || services.contains(BluetoothUUID("1108"))
        case .input, .serial: false
        }
    }

    /// Whether a device with these keys can talk by this profile: a profile for play/pause does not fit a mouse.
    fileprivate func hasTalkKey(among keys: Set<UInt16>) -> Bool {
        guard transport == .input else { return true }
        return inputs.contains { input in
            guard case .keys(let rule) = input.rule else { return false }
            return rule.controls.contains { control in
                control.control.defaultAction == .transmit && control.codes.contains { keys.contains($0) }
            }
        }
    }
}
